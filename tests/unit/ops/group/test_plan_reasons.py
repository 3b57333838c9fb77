"""Test why the plan is as it is, as reports explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.model.loads import Load
from kinesumer.model.rows import LeaderRow
from kinesumer.model.streams import HASH_KEYS
from kinesumer.ops.group.observation import FleetView
from tests.support.doctor import ARN, HALF, member, row, snapshot
from tests.support.stored_loads import stored_loads

if TYPE_CHECKING:
    from kinesumer.ops.group.loads import PlanReport

STREAMS = frozenset({ARN})
SHARDS = [row(0, "a"), row(1, "b")]
KEPT = "ranges are kept: no client with several shards has more than 12 % above"


def text(at: int, seconds: float) -> str:
    shard = SHARDS[at]
    load = Load(handler_seconds_per_second=seconds)
    return stored_loads({(shard.key, shard.first_hash): load}, STREAMS)


def pair(low: float, high: float, **more: Any) -> list[Any]:
    """Return two clients with a shard each, which report these loads."""
    return [
        member("a", last=HALF - 1, load=text(0, low), **more),
        member("b", first=HALF, index=1, load=text(1, high), **more),
    ]


def plan(members: list[Any], *, assignor: str = "load", **more: Any) -> PlanReport:
    """Return the reasons of a plan that was made at 1000 s, read at 1030 s."""
    leader = LeaderRow("session of a", "a", 1, 1, assignor, 20_000, 1000.0)
    fields = {"leader": leader, "read_at": 1030.0, **more}
    rows = fields.pop("rows", SHARDS)
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


def test_several_hot_shards_are_named_together() -> None:
    size = HASH_KEYS // 8
    names = "abcddddd"
    rows = [
        row(n, owner)._replace(first_hash=n * size, last_hash=(n + 1) * size - 1)
        for n, owner in enumerate(names)
    ]
    busy = [Load(handler_seconds_per_second=0.9 if n < 2 else 0.01) for n in range(8)]
    clients = [
        member(
            name,
            first=names.index(name) * size,
            last=(names.rindex(name) + 1) * size - 1,
            load=stored_loads(
                {
                    (r.key, r.first_hash): load
                    for r, load in zip(rows, busy, strict=True)
                    if r.owner_id == name
                },
                STREAMS,
            ),
        )
        for name in "abcd"
    ]
    assert plan(clients, rows=rows).reasons[2] == (
        "shardId-0, shardId-1 are hot: each alone has more work than a client's "
        "share, and no plan divides a shard"
    )


def test_owned_shards_without_a_load_are_awaited() -> None:
    [known, _], silent = pair(0.1, 0.1), member("b", first=HALF)
    assert "the load of 1 shard isn't" in plan([known, silent]).reasons[0]
    unreported = [known._replace(load=""), silent]
    assert "the load of 2 shards isn't" in plan(unreported).reasons[0]


def test_shards_without_an_owner_count_as_average_ones() -> None:
    # The leader has waited for their load for a minute, since nobody measures them.
    rows = [SHARDS[0], row(1, "")]
    [known, _], idle = pair(0.1, 0.1), member("b", first=HALF)
    assert plan([known, idle], rows=rows).reasons[0].startswith(KEPT)


def test_full_clients_are_told() -> None:
    rows = [SHARDS[0], row(1, "")]
    clients = [member("a", last=HALF - 1, load=text(0, 0.1), max_shards=1)]
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


def test_a_planned_change_is_told_before_it_is_made() -> None:
    found = plan([*pair(0.1, 0.1), member("c", index=None, range=None)])
    assert found.reasons[0].startswith("clients have joined, left or changed")
