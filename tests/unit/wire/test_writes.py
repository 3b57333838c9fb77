"""Test that each write accepts only the rows that the protocol's section 4 names."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import CorruptRowError
from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import QUERY, AppRow, MemberRow, Row, ShardRow, Value
from kinesumer.model.streams import HASH_KEYS, FanOutUse, Interval
from kinesumer.ports import WriteResult
from kinesumer.wire import rows, shard_writes, writes
from tests.support.write_cases import (
    APP,
    ARN,
    CASES,
    DEAD_ROW,
    FREE_ROW,
    LEADER,
    MEMBER_ROW,
    MINE,
    NOW,
    SHARD,
    SHARD_ROW,
    STREAM,
    after,
    assignment,
    row_after,
    write_over,
)

ACCEPTED = [(name, why) for name, case in CASES.items() for why in case.accepted]
REFUSED = [(name, why) for name, case in CASES.items() for why in case.refused]


@pytest.mark.parametrize(("name", "over"), ACCEPTED)
def test_it_is_applied_over(name: str, over: str) -> None:
    assert write_over(CASES[name].accepted[over], CASES[name].write).applied


@pytest.mark.parametrize(("name", "by"), REFUSED)
def test_it_is_refused_by(name: str, by: str) -> None:
    before = CASES[name].refused[by]
    assert write_over(before, CASES[name].write) == WriteResult(False, before)


@pytest.mark.parametrize(
    "changes",
    [{}, {"label": ""}, {"drained": True}, {"commit_ms": 1}, {"max_shards": 3}],
)
def test_a_registered_row_reads_as_the_member(changes: dict[str, Any]) -> None:
    member = MINE._replace(beat=0, **changes)
    row = row_after(None, writes.register(APP, member, None, NOW))
    assert rows.read_member(row) == member
    assert ("label" in row) is bool(member.label)
    # The usual interval isn't stored, since rows of older versions lack it, too.
    assert ("commit_ms" in row) is (member.commit_ms != 5_000)


def test_a_query_registers_with_the_range_of_all_shards() -> None:
    streams = frozenset({"b", "a"})
    query = MINE._replace(kind=QUERY, streams=streams, beat=0)
    row = row_after(None, writes.register(APP, query, None, NOW))
    whole = tuple(Interval(arn, 0, HASH_KEYS - 1) for arn in ("a", "b"))
    assert rows.read_member(row) == query._replace(index=0, range=whole)


def test_registering_over_the_dead_leaves_nothing_of_its_plan() -> None:
    before = DEAD_ROW | {"range": "0:0-", "index": 0, "keeps": frozenset({ARN})}
    row = row_after(before, CASES["register a used id"].write)
    assert not row.keys() & {"range", "index", "keeps"}


def test_a_heartbeat_writes_state_and_lease_and_sometimes_the_date() -> None:
    beat = writes.heartbeat(APP, MINE, 6, state="leaving", lease_ms=9000, moment="m")
    row = write_over(MEMBER_ROW, beat).row
    assert row == MEMBER_ROW | {
        "beat": 6,
        "state": "leaving",
        "lease_ms": 9000,
        "last_update": "m",
    }
    assert "last_update" not in CASES["heartbeat"].write.set


POLLING = {ARN: FanOutUse("billing", "access denied")}


def test_a_heartbeat_writes_fan_out_only_if_it_has_changed() -> None:
    def beat(member: MemberRow, uses: dict[str, FanOutUse]) -> Row | None:
        write = writes.heartbeat(
            APP, member, 6, state="up", lease_ms=8000, fan_out=uses
        )
        unchanged = {"beat", "state", "lease_ms"} == write.set.keys()
        row = write_over(MEMBER_ROW | {"fan_out": "0:old"}, write).row
        return None if unchanged and not write.remove else row

    assert (beat(MINE, POLLING) or {})["fan_out"] == "0:billing access denied"
    polling = MINE._replace(fan_out=POLLING)
    assert beat(MINE, {}) is None
    assert beat(polling, POLLING) is None
    assert "fan_out" not in (beat(polling, {}) or {"fan_out": "unchanged"})


def test_a_registration_says_how_fan_out_is_used() -> None:
    write = writes.register(APP, MINE._replace(fan_out=POLLING), None, NOW)
    assert write.set["fan_out"] == "0:billing access denied"
    assert "fan_out" not in writes.register(APP, MINE, None, NOW).set


def test_a_request_for_other_streams_removes_what_names_the_former_ones() -> None:
    asked = writes.request_streams(APP, MINE, frozenset({"arn:x"}))
    removed = {"range": "0:0-", "fan_out": "0:a", "load": "1 0:1|AAA!!!!"}
    removed |= {"incidents": "kms 1 1 0", "failures": "0 1 1 1 1 0 0"}
    row = row_after(MEMBER_ROW | removed, asked)
    assert row == MEMBER_ROW | {"streams": frozenset({"arn:x"})}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fence", {"dead": True, "last_update": NOW}),
        ("leave", {"dead": True, "last_update": NOW}),
        ("lead first", {"session": "mine", "client_id": "c1"}),
        ("lead first", {"leader_epoch": 1, "plan_version": 0}),
        ("lead after a death", {"session": "mine", "client_id": "c1"}),
        ("lead after a death", {"leader_epoch": 5, "plan_version": 7}),
        ("publish", {"plan_version": 8, "planned_at": 1234}),
        ("publish", {"assignor": "load", "rebalance_ms": 20_000}),
        ("assign", {"range": "0:0-9", "index": 2, "clients": 3}),
        ("assign", {"leader_epoch": 4, "plan_version": 7}),
        ("create group", {"group_id": "g1", "version": 1}),
        ("claim what is free", {"owner": "mine", "owner_id": "c1", "claim": "n"}),
        ("claim what is free", {"epoch": 7, "sequence_number": "500"}),
    ],
)
def test_a_row_has_the_attributes_that_a_write_sets(
    name: str, expected: dict[str, Value]
) -> None:
    assert after(name).items() >= expected.items()


def test_a_shard_is_opened_for_claims() -> None:
    row = write_over(SHARD_ROW | {"ready": False}, shard_writes.ready(APP, SHARD)).row
    assert row == SHARD_ROW


def test_a_reopened_shard_goes_on_at_its_position() -> None:
    ended = FREE_ROW | {"ended": True}
    assert write_over(ended, shard_writes.reopen(APP, SHARD)).row == FREE_ROW


def test_a_member_syncs_streams_only_until_the_next_plan() -> None:
    syncing = writes.assign(
        APP, MINE, LEADER, index=0, range_=(), clients=1, syncs=frozenset({ARN})
    )
    row = row_after(MEMBER_ROW, syncing)
    assert rows.read_member(row).syncs == {ARN}
    row = row_after(row, assignment(version=8))
    assert rows.read_member(row).syncs == frozenset()


def test_stream_rows_read_as_they_were_created() -> None:
    assert rows.read_stream(after("create stream")) == STREAM
    assert rows.read_stream(after("baseline")).baseline


UNOWNED = SHARD._replace(owner="", owner_id="")
PARENTS = frozenset({"p1", "p2"})
ENDED = UNOWNED._replace(parents=PARENTS, position=Position("7", 3), ended=True)


@pytest.mark.parametrize("shard", [UNOWNED, ENDED._replace(ready=True)])
def test_shard_rows_read_as_they_were_created(shard: ShardRow) -> None:
    row = row_after(None, shard_writes.create_shard(APP, shard))
    assert rows.read_shard(row) == shard


@pytest.mark.parametrize("name", ["release", "release without progress", "end"])
def test_giving_up_removes_the_owner_and_keeps_the_epoch(name: str) -> None:
    row = after(name)
    assert not row.keys() & {"owner", "owner_id", "claim"}
    assert row["epoch"] == 6
    assert row["ended"] == (name == "end")
    position = "500" if name == "release without progress" else "600"
    assert row["sequence_number"] == position


@pytest.mark.parametrize("name", ["prune member", "prune shard", "delete"])
def test_pruned_and_deleted_rows_are_gone(name: str) -> None:
    case = CASES[name]
    assert write_over(next(iter(case.accepted.values())), case.write).row is None


def test_a_commit_may_include_a_tip() -> None:
    tip = Tip(0.25, Position("600"))
    row = row_after(SHARD_ROW, shard_writes.commit(APP, SHARD, Position("600"), tip))
    assert rows.read_shard(row).tip == tip


@pytest.mark.parametrize("load", ["", "1 0:1|AAA!!!!", "1 0:1|BBB!!!!", None])
def test_a_heartbeat_stores_a_load_that_has_changed(load: str | None) -> None:
    before = row_after(None, writes.register(APP, MINE, None, NOW))
    before["load"] = "1 0:1|AAA!!!!"
    member = rows.read_member(before)
    reports = None if load is None else {"load": load}
    write = writes.heartbeat(APP, member, 1, state="up", lease_ms=8000, reports=reports)
    after = rows.read_member(row_after(before, write))
    assert after.load == (member.load if load is None else load)
    assert ("load" in write.set) is (load == "1 0:1|BBB!!!!")


def test_an_app_row_is_replaced_only_as_it_was_read() -> None:
    stored = AppRow(APP, frozenset({ARN}), updated_at=1_700_000_000.123)
    first = row_after(None, writes.announce(APP, stored.streams, None, 1.7e9))
    later = writes.announce(APP, stored.streams, rows.read_app(first), 1.8e9)
    assert rows.read_app(row_after(first, later)).updated_at == 1.8e9
    assert not write_over(row_after(first, later), later).applied
    again = writes.announce(APP, stored.streams, None, stored.updated_at)
    assert rows.read_app(row_after(None, again)) == stored
    assert not write_over(first, again).applied


@pytest.mark.parametrize("lost", ["streams", "updated_at"])
def test_a_row_without_an_attribute_is_corrupt(lost: str) -> None:
    row = row_after(None, writes.announce(APP, frozenset({ARN}), None, 1.7e9))
    with pytest.raises(CorruptRowError, match=f"attribute {lost} is missing"):
        rows.read_app({key: row[key] for key in row.keys() - {lost}})
