"""The events between two observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.admin.observation import observe
from kinesumer.dashboard.events import find_events
from kinesumer.model.positions import Position
from kinesumer.model.rows import GroupRow
from kinesumer.model.streams import ShardKey
from tests.support.toy_fleet import ToyFleet, arn_of

if TYPE_CHECKING:
    from kinesumer.admin.observation import Observation

LOOK_SECONDS = 2.0


class Looker:
    """Observes a fleet every two seconds."""

    def __init__(self, fleet: ToyFleet) -> None:
        self.fleet, self.now = fleet, 0.0
        self.last: Observation = observe(None, fleet.snapshot(), fleet.millis, 0)

    def look(self, seconds: float = LOOK_SECONDS) -> list[tuple[str, str]]:
        """Return the kinds and texts of the events since the last observation."""
        self.now += seconds
        fleet = self.fleet
        now = observe(self.last, fleet.snapshot(), fleet.millis, self.now)
        events, self.last = find_events(self.last, now), now
        return [(event.kind, event.text) for event in events]


@pytest.fixture
def fleet() -> ToyFleet:
    return ToyFleet(["a", "b"], {"orders": 4})


@pytest.fixture
def looker(fleet: ToyFleet) -> Looker:
    return Looker(fleet)


def shard(number: int) -> ShardKey:
    return ShardKey(arn_of("orders"), f"shardId-{number:012d}")


def test_nothing_happens_where_nothing_changes(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat()
    assert looker.look() == []


def test_a_client_joins_and_takes_shards_over(looker: Looker, fleet: ToyFleet) -> None:
    fleet.join("c")
    assert looker.look() == [("joined", "c joined")]
    fleet.beat()
    fleet.plan()
    fleet.settle()
    assert (
        looker.look()
        == [
            ("moved", "orders: shard 2 moved from b to a"),
            ("moved", "orders: shard 3 moved from b to c"),
        ]
        or looker.last.snapshot.owned["session of c"]
    )


def test_a_client_comes_back_in_a_new_session(looker: Looker, fleet: ToyFleet) -> None:
    fleet.change("b", session="another")
    assert ("joined", "b joined again, in a new session") in looker.look()


def test_a_silent_client_stalls_and_is_fenced(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat(but=["b"])
    assert looker.look() == []
    fleet.beat(but=["b"])
    assert looker.look() == [("stalled", "b stalled: no heartbeat for 4 s")]
    fleet.bury("b")
    fleet.beat()
    assert looker.look() == [("fenced", "b was fenced: its heartbeat had stopped")]


def test_a_stalled_client_with_a_new_heartbeat_recovers(
    looker: Looker, fleet: ToyFleet
) -> None:
    for _ in range(2):
        fleet.beat(but=["b"])
        looker.look()
    fleet.beat()
    assert looker.look() == [("recovered", "b sends heartbeats again")]


def test_a_client_leaves(looker: Looker, fleet: ToyFleet) -> None:
    fleet.change("b", state="leaving")
    fleet.beat()
    assert looker.look() == [("leaving", "b is leaving: its shards move")]
    fleet.bury("b")
    fleet.beat()
    assert looker.look() == [("left", "b left")]


def test_a_client_that_marked_itself_dead_has_left(
    looker: Looker, fleet: ToyFleet
) -> None:
    fleet.bury("b")
    assert looker.look() == [("left", "b left")]


def test_after_a_long_gap_leaving_and_fencing_look_alike(
    looker: Looker, fleet: ToyFleet
) -> None:
    fleet.bury("b")
    fleet.beat()
    told = ("fenced", "b left or was fenced, while no page was open")
    assert looker.look(600) == [told]


def test_another_client_leads(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat()
    fleet.leader = "b"
    assert looker.look() == [("led", "b leads")]


def test_a_lost_leader_is_an_event(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat()
    fleet.leader = ""
    assert looker.look() == [("leaderless", "no client leads: a no longer does")]


def test_a_shard_splits_and_is_read_to_its_end(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat()
    fleet.split(shard(1))
    assert looker.look() == [("split", "orders: 1 splits into 4 and 5")]
    fleet.beat()
    fleet.end(shard(1))
    fleet.settle()
    assert looker.look() == [
        ("ended", "orders: shard 1 read to the end"),
        ("taken", "orders: a took 2 shards"),
    ]


def test_two_shards_merge(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat()
    (child, other) = fleet.split(shard(1))
    del fleet.shards[other]
    parents = frozenset({shard(1).shard_id, shard(2).shard_id})
    fleet.shards[child] = fleet.shards[child]._replace(parents=parents)
    assert looker.look() == [("merged", "orders: 1 and 2 merge into 4")]


def test_a_shard_that_stays_behind_for_a_minute_stalls(
    looker: Looker, fleet: ToyFleet
) -> None:
    fleet.millis[shard(3)] = 20_000
    told = []
    for _ in range(31):
        fleet.beat()
        row = fleet.shards[shard(3)]
        fleet.shards[shard(3)] = row._replace(position=None)
        told += looker.look()
    text = "orders: shard 3 stalled at b: behind, and no progress for a minute"
    assert told == [("stalled", text)]


def test_pauses_and_their_ends_are_reported(looker: Looker, fleet: ToyFleet) -> None:
    fleet.beat()
    arn = arn_of("orders")
    row = fleet.shards[shard(0)]
    fleet.group = GroupRow("group", paused=True, pause_reason="a deploy")
    fleet.streams[arn] = fleet.streams[arn]._replace(paused=True)
    fleet.shards[shard(0)] = row._replace(paused=True)
    assert looker.look() == [
        ("paused", "everything is paused: a deploy"),
        ("paused", "stream orders is paused"),
        ("paused", "orders: shard 0 paused"),
    ]
    fleet.beat()
    fleet.group = GroupRow("group")
    fleet.streams[arn] = fleet.streams[arn]._replace(paused=False)
    fleet.shards[shard(0)] = row
    assert [kind for kind, _ in looker.look()] == ["resumed"] * 3


def test_drained_clients_and_seeks_are_reported(
    looker: Looker, fleet: ToyFleet
) -> None:
    fleet.beat()
    looker.look()
    fleet.beat()
    fleet.change("b", drained=True)
    for number in (0, 1):
        row = fleet.shards[shard(number)]
        fleet.shards[shard(number)] = row._replace(position=Position("1" * 20))
    assert looker.look() == [
        ("drained", "b is drained"),
        ("sought", "orders: 2 shards seeked"),
    ]


def test_a_name_of_control_characters_is_reported_escaped(
    looker: Looker, fleet: ToyFleet
) -> None:
    fleet.join("\x1b[2Jc")
    fleet.beat()
    assert looker.look() == [("joined", "\\x1b[2Jc joined")]
