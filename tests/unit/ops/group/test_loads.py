"""Test the loads of clients and shards, and the reasons of plans."""

from __future__ import annotations

from typing import Any

from kinesumer.model.reports import Load
from kinesumer.model.rows import LeaderRow
from kinesumer.ops.group.loads import PlanReport, Rates
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from tests.support.doctor import ARN, HALF, member, row, snapshot
from tests.support.shares import stored_loads

STREAMS = frozenset({ARN})
LOW, HIGH = row(0, "a"), row(1, "b")
LIGHT, HEAVY = Load(1000.0, 10.0, 0.1), Load(2000.0, 20.0, 0.5)


def text(shard: Any, load: Load) -> str:
    return stored_loads({(shard.key, shard.first_hash): load}, STREAMS)


MEMBERS = [
    member("a", load=text(LOW, LIGHT)),
    member("b", load=text(HIGH, HEAVY)),
    member("c"),
]
STATUS = report("app", "table", FleetView(snapshot([LOW, HIGH], MEMBERS)))


def test_members_and_shards_have_the_load_that_is_reported() -> None:
    a, b, c = STATUS.members
    # A row holds loads in steps of some percent.
    assert a.load == Rates(949.0, 10.5, 0.1)
    assert b.load == Rates(2010.0, 19.1, 0.5)
    assert c.load is None
    # The last one owns no shards.
    assert [member.load_share for member in STATUS.members] == [0.5, 2.5, 0]
    low, high = STATUS.streams[0].shards
    assert (low.load, high.load) == (a.load, b.load)


def test_a_shard_with_more_work_than_a_clients_share_is_hot() -> None:
    low, high = STATUS.streams[0].shards
    assert (low.hot, high.hot) == (False, True)
    # Equal shards aren't hot, even if there are fewer of them than clients.
    equal = [member("a", load=text(LOW, HEAVY)), *MEMBERS[1:]]
    assert not FleetView(snapshot([LOW, HIGH], equal)).loads.hot_shards
    alone = FleetView(snapshot([LOW, HIGH], [MEMBERS[1]]))
    assert not alone.loads.hot_shards


def test_a_client_that_does_not_report_its_shards_yet_has_no_share() -> None:
    fleet = FleetView(snapshot([LOW, HIGH], [MEMBERS[0], member("b")]))
    assert fleet.loads.shares == {"a": 1}


def test_an_unreadable_load_is_unknown() -> None:
    fleet = FleetView(snapshot([LOW], [member("a", load="?")]))
    assert (fleet.loads.of_shards, fleet.loads.shares) == ({}, {})


KEPT = "ranges are kept: no client with several shards has more than 12 % above"


def reported(shard: Any, seconds: float) -> str:
    return text(shard, Load(handler_seconds_per_second=seconds))


def pair(low: float, high: float, **more: Any) -> list[Any]:
    """Return two clients with a shard each, which report these loads."""
    return [
        member("a", last=HALF - 1, load=reported(LOW, low), **more),
        member("b", first=HALF, index=1, load=reported(HIGH, high), **more),
    ]


def plan(members: list[Any], *, assignor: str = "load", **more: Any) -> PlanReport:
    """Return the reasons of a plan that was made at 1000 s, read at 1030 s."""
    leader = LeaderRow("session of a", "a", 1, 1, assignor, 20_000, 1000.0)
    fields = {"leader": leader, "read_at": 1030.0, **more}
    rows = fields.pop("rows", [LOW, HIGH])
    return FleetView(snapshot(rows, members, **fields)).plan


def test_the_assignor_the_age_and_the_busiest_client_are_told() -> None:
    found = plan(pair(0.1, 0.1))
    assert (found.assignor, found.age_seconds) == ("load", 30.0)
    decision, busiest = found.reasons
    assert decision.startswith(KEPT)
    assert busiest == "a is the busiest client, with 100 % of its share of the work"


def test_a_recent_plan_by_load_stays() -> None:
    [decision, _] = plan(pair(0.1, 0.1), read_at=1019.9).reasons
    assert decision == (
        "the last plan is 19 s old: until 20 s have passed "
        "(rebalance_interval_seconds), the load alone causes no other plan"
    )
    # The leader's clock may be ahead.
    assert plan(pair(0.1, 0.1), read_at=999.0).age_seconds == 0
    assert plan(pair(0.1, 0.1), read_at=None).age_seconds is None


def test_hot_shards_are_named() -> None:
    clients = pair(0.1, 0.9)
    assert plan(clients).reasons[2] == (
        "shardId-1 is hot: it alone has more work than a client's share, and no plan "
        "divides a shard"
    )


def test_owned_shards_without_a_load_are_awaited() -> None:
    [known, _], silent = pair(0.1, 0.1), member("b", first=HALF)
    assert "the load of 1 shard isn't" in plan([known, silent]).reasons[0]
    unreported = [known._replace(load=""), silent]
    assert "the load of 2 shards isn't" in plan(unreported).reasons[0]


def test_shards_without_an_owner_count_as_average_ones() -> None:
    # The leader has waited for their load for a minute, since nobody measures them.
    rows = [LOW, row(1, "")]
    [known, _], idle = pair(0.1, 0.1), member("b", first=HALF)
    assert plan([known, idle], rows=rows).reasons[0].startswith(KEPT)


def test_full_clients_are_told() -> None:
    rows = [LOW, row(1, "")]
    clients = [member("a", last=HALF - 1, load=reported(LOW, 0.1), max_shards=1)]
    *_, limits = plan(clients, rows=rows).reasons
    assert limits == (
        "1 shard belongs to no client, because all clients own their max_shards"
    )


def test_other_assignors_count_shards() -> None:
    decision, busiest = plan(pair(0.1, 0.9), assignor="range").reasons
    assert decision.startswith("the assignor range gives each client")
    assert "in proportion to its weight" in decision
    assert busiest.startswith("b is the busiest client, with 18")
    assert plan(pair(0, 0), assignor="new").reasons[0] == "the assignor is new"


def test_without_a_plan_there_are_no_reasons() -> None:
    assert plan(pair(0.1, 0.1), assignor="").reasons == []
    assert plan(pair(0.1, 0.1), leader=None).assignor is None
    assert plan(pair(0.1, 0.1, drained=True)).reasons == []
