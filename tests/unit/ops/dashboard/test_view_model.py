"""Test the model of the dashboard's page: lanes, colours, totals and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths
from kinesumer.model.streams import ShardKey
from kinesumer.ops.dashboard.throughput import LagHistory
from kinesumer.ops.dashboard.view_model import (
    DashboardInfo,
    ViewInput,
    assign_lanes,
    assign_slots,
    build_state,
)
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import observe
from tests.support.toy_fleet import ToyFleet, arn_of

if TYPE_CHECKING:
    from kinesumer.ops.dashboard.model import State


def shard(number: int) -> ShardKey:
    return ShardKey(arn_of("orders"), f"shardId-{number:012d}")


def drawn(fleet: ToyFleet) -> State:
    observation = observe(None, fleet.snapshot(), Lags(fleet.millis, {}), 0)
    view = ViewInput(observation, 0, 2, fleet.rates)
    return build_state(DashboardInfo("billing", "table"), view)


def test_shards_of_a_band_fill_the_hash_space() -> None:
    (band,) = drawn(ToyFleet(["a", "b"], {"orders": 3})).streams
    assert band.lanes == 1
    assert sum(shard.width for shard in band.shards) == pytest.approx(1)
    assert [(part.client_id, part.x, part.width) for part in band.parts] == [
        ("a", 0, 0.5),
        ("b", 0.5, 0.5),
    ]


def test_grandchildren_are_below_children() -> None:
    fleet = ToyFleet(["a"], {"orders": 2})
    left, _ = fleet.split(shard(0))
    fleet.split(left)
    places = {row.key: lane for row, lane in assign_lanes(list(fleet.shards.values()))}
    assert places == {
        shard(0): 0,
        shard(1): 0,
        shard(2): 1,
        shard(3): 1,
        shard(4): 2,
        shard(5): 2,
    }


def test_parents_disappear_when_no_child_waits_for_them() -> None:
    fleet = ToyFleet(["a"], {"orders": 1})
    fleet.split(shard(0))
    fleet.end(shard(0))
    places = {row.key: lane for row, lane in assign_lanes(list(fleet.shards.values()))}
    assert places == {shard(1): 0, shard(2): 0}


def test_an_ended_parent_stays_while_its_child_waits_for_another() -> None:
    fleet = ToyFleet(["a"], {"orders": 2})
    child, other = fleet.split(shard(0))
    del fleet.shards[other]
    parents = frozenset({shard(0).shard_id, shard(1).shard_id})
    last = fleet.shards[shard(1)].last_hash
    row = fleet.shards[child]._replace(parents=parents, last_hash=last)
    fleet.shards[child] = row
    fleet.end(shard(0))
    states = {s.shard_id: (s.state, s.lane) for s in drawn(fleet).streams[0].shards}
    assert states == {
        shard(0).shard_id: ("ended", 0),
        shard(1).shard_id: ("owned", 0),
        child.shard_id: ("waiting", 1),
    }


def test_rows_that_name_each_other_as_parents_end_the_walk() -> None:
    fleet = ToyFleet(["a"], {"orders": 1})
    one, other = fleet.split(shard(0))
    for key, parent in ((one, other), (other, one)):
        parents = frozenset({parent.shard_id})
        fleet.shards[key] = fleet.shards[key]._replace(parents=parents)
    assert len(assign_lanes(list(fleet.shards.values()))) == 3


def test_unowned_shards_are_neglected_unless_paused() -> None:
    fleet = ToyFleet(["a"], {"orders": 4})
    fleet.split(shard(3))
    fleet.own(shard(0), None)
    fleet.shards[shard(1)] = fleet.shards[shard(1)]._replace(paused=True)
    fleet.own(shard(1), None)
    totals = drawn(fleet).totals
    assert (totals.shards, totals.owned) == (4, 2)
    assert (totals.paused, totals.neglected) == (1, 1)


def test_a_client_is_shown_with_its_states_and_its_largest_lag() -> None:
    fleet = ToyFleet(["a", "b"], {"orders": 4})
    fleet.change("b", drained=True, label="zone-1")
    fleet.join("c")
    fleet.millis[shard(0)] = 7000
    a, b, c = drawn(fleet).members
    assert (a.states, a.leader, a.millis_behind) == (["up"], True, 7000)
    assert (a.caught_up, c.caught_up) == (False, None)
    assert (b.states, b.label) == (["drained"], "zone-1")
    assert (c.states, c.shards) == (["joining"], 0)


def test_clients_keep_their_colours_and_plain_ones_go_first() -> None:
    known = assign_slots({}, ["a", "b", "c"])
    assert len(set(known.values())) == 3
    assert all(slot < 8 for slot in known.values())
    more = assign_slots(known, [f"client-{i}" for i in range(29)] + ["a", "b", "c"])
    assert {name: more[name] for name in known} == known
    assert sorted(more.values()) == list(range(32))
    assert max(assign_slots(more, [*more, "one too many"]).values()) < 32


def test_an_hour_is_retained_in_steps_of_ten_seconds() -> None:
    hour = LagHistory()
    for second in range(0, 4000, 2):
        hour.add(second, {"arn:stream/a": second % 10}, {"arn:stream/a": second % 4})
    lines = hour.lines({})
    assert (lines.times[0], lines.times[-1], len(lines.times)) == (400, 3990, 360)
    (lag,) = lines.millis_behind
    (rate,) = lines.records_per_second
    assert (lag.name, set(lag.values)) == ("a", {8})
    assert set(rate.values) == {0.8, 1.2}


def test_of_many_streams_the_busiest_have_lines() -> None:
    hour = LagHistory()
    hour.add(0, {f"arn:stream/{i:02d}": i for i in range(20)}, {})
    hour.add(20, {"arn:stream/00": 5}, {})
    names = [line.name for line in hour.lines({}).millis_behind]
    assert names == [f"{i:02d}" for i in range(8, 20)]


def test_isolation_and_the_record_that_kills_are_shown() -> None:
    fleet = ToyFleet(["a"], {"orders": 3})
    poison = Position("71", 3)
    for number, deaths in ((1, Deaths(3)), (2, Deaths(5, poison=poison))):
        key = shard(number)
        fleet.shards[key] = fleet.shards[key]._replace(deaths=deaths)
    state = drawn(fleet)
    [band] = state.streams
    assert [(one.isolated, one.poison) for one in band.shards] == [
        (False, None),
        (True, None),
        (True, "71:3"),
    ]
    assert any("stops at record 71:3" in text for text in state.problems)
    assert any("shardId-000000000001 is read in isolation" in t for t in state.problems)


def test_loads_and_the_reasons_of_the_plan_are_shown() -> None:
    fleet = ToyFleet(["a", "b"], {"orders": 3})
    fleet.plan_by_load({shard(0): 0.1, shard(1): 0.1, shard(2): 0.9})
    state = drawn(fleet)
    a, b = state.members
    assert a.load is not None
    assert a.load["handler_seconds_per_second"] == pytest.approx(0.2, rel=0.01)
    assert (a.load_share, b.load_share) == (0.37, 1.63)
    [band] = state.streams
    assert [one.hot for one in band.shards] == [False, False, True]
    assert band.shards[2].load is not None
    assert band.shards[2].load["records_per_second"] > 0
    assert state.plan.assignor == "load"
    assert "b is the busiest client, with 163 % of its share" in state.plan.reasons[1]


def test_without_loads_nothing_is_said_of_them() -> None:
    state = drawn(ToyFleet(["a"], {"orders": 1}))
    assert (state.plan.assignor, state.plan.reasons) == (None, [])
    assert (state.members[0].load, state.members[0].load_share) == (None, None)
    assert state.streams[0].shards[0].load is None
