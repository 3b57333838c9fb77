"""Test the events that the dashboard derives from two observations."""

from __future__ import annotations

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import NO_DEATHS, Deaths, GroupRow
from kinesumer.ops.dashboard.events import find_events
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import Observation, observe
from tests.support.toy_fleet import ToyFleet, arn_of, shard

POLL_SECONDS = 2.0


class ObservedFleet(ToyFleet):
    """A fleet that is observed every two seconds."""

    def __init__(self) -> None:
        super().__init__(["a", "b"], {"orders": 4})
        self.now = 0.0
        self.observation = self._observe(None)

    def _observe(self, before: Observation | None) -> Observation:
        return observe(before, self.snapshot(), Lags(self.millis, {}), self.now)

    def events(
        self, seconds: float = POLL_SECONDS, *, silent: str = ""
    ) -> list[tuple[str, str]]:
        """Send heartbeats, and return the kinds and texts of the new events."""
        self.beat(but=silent)
        self.now += seconds
        before, self.observation = self.observation, self._observe(self.observation)
        events = find_events(before, self.observation)
        return [(event.kind, event.text) for event in events]


@pytest.fixture
def fleet() -> ObservedFleet:
    return ObservedFleet()


def test_nothing_happens_where_nothing_changes(fleet: ObservedFleet) -> None:
    assert fleet.events() == []


def test_a_client_joins_and_takes_shards_over(fleet: ObservedFleet) -> None:
    fleet.join("c")
    assert fleet.events() == [("joined", "c joined")]
    fleet.plan()
    fleet.settle()
    assert fleet.events() == [("moved", "orders: shard 3 moved from b to c")]


def test_a_client_comes_back_in_a_new_session(fleet: ObservedFleet) -> None:
    fleet.change("b", session="another")
    assert ("joined", "b joined again, in a new session") in fleet.events()


def test_a_silent_client_stalls_and_is_fenced(fleet: ObservedFleet) -> None:
    assert fleet.events(silent="b") == []
    assert fleet.events(silent="b") == [("stalled", "b stalled: no heartbeat for 4 s")]
    fleet.bury("b")
    assert fleet.events() == [("fenced", "b was fenced: its heartbeat had stopped")]


def test_a_stalled_client_with_a_new_heartbeat_recovers(fleet: ObservedFleet) -> None:
    for _ in range(2):
        fleet.events(silent="b")
    assert fleet.events() == [("recovered", "b sends heartbeats again")]


def test_a_client_leaves(fleet: ObservedFleet) -> None:
    fleet.change("b", state="leaving")
    assert fleet.events() == [("leaving", "b is leaving: its shards move")]
    fleet.bury("b")
    assert fleet.events() == [("left", "b left")]


def test_after_a_long_gap_leaving_and_fencing_look_alike(fleet: ObservedFleet) -> None:
    fleet.bury("b")
    assert fleet.events(600) == [("fenced", "b left or was fenced")]


@pytest.mark.parametrize(
    ("leader", "event"),
    [
        ("b", ("led", "b leads")),
        ("", ("leaderless", "no client leads: a no longer does")),
    ],
)
def test_a_change_of_the_leader_is_an_event(
    fleet: ObservedFleet, leader: str, event: tuple[str, str]
) -> None:
    fleet.leader = leader
    assert fleet.events() == [event]


def test_a_shard_splits_and_is_read_to_its_end(fleet: ObservedFleet) -> None:
    fleet.split(shard(1))
    assert fleet.events() == [("split", "orders: 1 splits into 4 and 5")]
    fleet.end(shard(1))
    fleet.settle()
    assert fleet.events() == [
        ("ended", "orders: shard 1 read to the end"),
        ("taken", "orders: a took 2 shards"),
    ]


def test_two_shards_merge(fleet: ObservedFleet) -> None:
    (child, other) = fleet.split(shard(1))
    del fleet.shards[other]
    parents = frozenset({shard(1).shard_id, shard(2).shard_id})
    fleet.change_shard(child, parents=parents)
    assert fleet.events() == [("merged", "orders: 1 and 2 merge into 4")]


def test_a_shard_that_stays_behind_for_a_minute_stalls(fleet: ObservedFleet) -> None:
    fleet.millis[shard(3)] = 20_000
    events = []
    for _ in range(31):
        # The next heartbeat stores the same position again.
        fleet.change_shard(shard(3), position=None)
        events += fleet.events()
    text = "orders: shard 3 stalled at b: behind, and no progress for a minute"
    assert events == [("stalled", text)]


def test_pauses_and_their_ends_are_reported(fleet: ObservedFleet) -> None:
    arn = arn_of("orders")
    fleet.group = GroupRow("group", paused=True, pause_reason="a deploy")
    fleet.streams[arn] = fleet.streams[arn]._replace(paused=True)
    fleet.change_shard(shard(0), paused=True)
    assert fleet.events() == [
        ("paused", "everything is paused: a deploy"),
        ("paused", "stream orders is paused"),
        ("paused", "orders: shard 0 paused"),
    ]
    fleet.group = GroupRow("group")
    fleet.streams[arn] = fleet.streams[arn]._replace(paused=False)
    fleet.change_shard(shard(0), paused=False)
    assert [kind for kind, _ in fleet.events()] == ["resumed"] * 3


def test_drained_clients_and_seeks_are_reported(fleet: ObservedFleet) -> None:
    fleet.events()
    fleet.change("b", drained=True)
    for number in (0, 1):
        fleet.change_shard(shard(number), position=Position("1" * 20))
    assert fleet.events() == [
        ("drained", "b is drained"),
        ("seeked", "orders: 2 shards seeked"),
    ]


def test_a_shard_is_isolated_until_deaths_are_forgotten(fleet: ObservedFleet) -> None:
    fleet.change_shard(shard(1), deaths=Deaths(2, 0.0))
    assert fleet.events() == []
    fleet.change_shard(shard(1), deaths=Deaths(3, 0.0))
    fleet.change_shard(shard(2), deaths=Deaths(3, 0.0))
    text = "read one record at a time, because owners died at the same position"
    assert fleet.events() == [("isolated", f"orders: 2 shards {text}")]
    fleet.change_shard(shard(1), deaths=NO_DEATHS)
    text = "orders: shard 1 no longer read one record at a time"
    assert fleet.events() == [("recovered", text)]
    fleet.change_shard(shard(2), deaths=NO_DEATHS)
    fleet.end(shard(2))
    assert [kind for kind, _ in fleet.events()] == ["ended"]


def test_a_record_that_kills_its_readers_is_an_event_once(fleet: ObservedFleet) -> None:
    fleet.events()
    poison = Position(str(10**21))
    fleet.change_shard(shard(1), deaths=Deaths(4, 0.0, suspect=poison))
    fleet.events()
    fleet.change_shard(shard(1), deaths=Deaths(5, 0.0, suspect=poison, poison=poison))
    text = f"orders: record {10**21} of shard 1 kills its readers"
    assert fleet.events() == [("poison", text)]
    assert fleet.events() == []
