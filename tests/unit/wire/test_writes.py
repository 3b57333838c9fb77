"""Every write's condition refuses exactly what section 4 of the protocol says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import QUERY, LeaderRow, ShardRow
from kinesumer.model.streams import HASH_KEYS, Interval
from kinesumer.ports import WriteResult
from kinesumer.simulation.conditions import holds
from kinesumer.wire import rows, writes
from tests.unit.wire.write_cases import (
    APP,
    ARN,
    CASES,
    DEAD_ROW,
    LEADER,
    MEMBER_ROW,
    MINE,
    NOW,
    SHARD,
    SHARD_ROW,
    STREAM,
    assignment,
    without,
    write_over,
)

if TYPE_CHECKING:
    from kinesumer.model.rows import Row

ACCEPTED = [(name, why) for name, case in CASES.items() for why in case.accepted]
REFUSED = [(name, why) for name, case in CASES.items() for why in case.refused]


@pytest.mark.parametrize(("name", "over"), ACCEPTED)
def test_it_is_applied_over(name: str, over: str) -> None:
    assert write_over(CASES[name].accepted[over], CASES[name].write).applied


@pytest.mark.parametrize(("name", "by"), REFUSED)
def test_it_is_refused_by(name: str, by: str) -> None:
    before = CASES[name].refused[by]
    assert write_over(before, CASES[name].write) == WriteResult(False, before)


def after(name: str) -> Row:
    """Return the row that a write leaves over the first row that accepts it."""
    case = CASES[name]
    row = write_over(next(iter(case.accepted.values())), case.write).row
    assert row is not None
    return row


def test_a_registered_row_reads_as_the_member() -> None:
    assert rows.read_member(after("register a new id")) == MINE._replace(beat=0)


def test_a_member_without_a_label_has_no_such_attribute() -> None:
    register = writes.register(APP, MINE._replace(label=""), None, NOW)
    row = write_over(None, register).row
    assert row is not None
    assert "label" not in row


def test_a_session_after_a_drained_one_of_the_same_process_is_drained() -> None:
    drained = MINE._replace(drained=True, beat=0)
    row = write_over(None, writes.register(APP, drained, None, NOW)).row
    assert row is not None
    assert rows.read_member(row) == drained


def test_a_query_says_itself_that_everything_is_its_own() -> None:
    streams = frozenset({"b", "a"})
    query = MINE._replace(kind=QUERY, streams=streams, beat=0)
    row = write_over(None, writes.register(APP, query, None, NOW)).row
    assert row is not None
    whole = tuple(Interval(arn, 0, HASH_KEYS - 1) for arn in ("a", "b"))
    assert rows.read_member(row) == query._replace(index=0, range=whole)


def test_registering_over_the_dead_leaves_nothing_of_its_plan() -> None:
    before = DEAD_ROW | {"range": "0:0-", "index": 0, "keeps": frozenset({ARN})}
    row = write_over(before, CASES["register a used id"].write).row
    assert row is not None
    assert not row.keys() & {"range", "index", "keeps"}


def test_a_beat_brings_the_state_and_the_lease_and_now_and_then_the_date() -> None:
    beat = writes.heartbeat(APP, MINE, 6, state="leaving", lease_ms=9000, moment="m")
    row = write_over(MEMBER_ROW, beat).row
    assert row == MEMBER_ROW | {
        "beat": 6,
        "state": "leaving",
        "lease_ms": 9000,
        "last_update": "m",
    }
    assert "last_update" not in CASES["heartbeat"].write.set


def test_asking_for_other_streams_drops_the_range_until_there_is_a_plan() -> None:
    asked = writes.request_streams(APP, MINE, frozenset({"arn:x"}))
    row = write_over(MEMBER_ROW | {"range": "0:0-"}, asked).row
    assert row == MEMBER_ROW | {"streams": frozenset({"arn:x"})}


@pytest.mark.parametrize("name", ["fence", "leave"])
def test_death_is_a_mark_with_a_date(name: str) -> None:
    row = after(name)
    assert (row["dead"], row["last_update"]) == (True, NOW)


def test_leadership_grows_by_one_term_and_keeps_counting_plans() -> None:
    assert rows.read_leader(after("lead first")) == LeaderRow("mine", "c1", 1, 0)
    expected = LeaderRow("mine", "c1", 5, 7)
    assert rows.read_leader(after("lead after a death")) == expected


def test_a_group_tells_its_id_and_the_version_of_its_rows() -> None:
    row = after("create group")
    assert (row["group_id"], row["version"]) == ("g1", 1)


def test_a_shard_is_opened_for_claims() -> None:
    row = write_over(SHARD_ROW | {"ready": False}, writes.ready(APP, SHARD)).row
    assert row == SHARD_ROW


def test_a_published_plan_is_counted() -> None:
    assert rows.read_leader(after("publish")).plan_version == 8


def test_an_assignment_reads_as_the_plan() -> None:
    member = rows.read_member(after("assign"))
    assert member.range == (Interval(ARN, 0, 9),)
    assert (member.index, member.clients, member.plan) == (2, 3, (4, 7))


def test_a_keeper_is_told_and_told_no_more() -> None:
    keeping = writes.assign(
        APP, MINE, LEADER, index=0, range_=(), clients=1, syncs=frozenset({ARN})
    )
    row = write_over(MEMBER_ROW, keeping).row
    assert row is not None
    assert rows.read_member(row).syncs == {ARN}
    row = write_over(row, assignment(version=8)).row
    assert row is not None
    assert rows.read_member(row).syncs == frozenset()


def test_stream_rows_read_as_they_were_created() -> None:
    assert rows.read_stream(after("create stream")) == STREAM
    assert rows.read_stream(after("baseline")).baseline


@pytest.mark.parametrize(
    "shard",
    [
        SHARD._replace(owner="", owner_id=""),
        SHARD._replace(
            owner="",
            owner_id="",
            parents=frozenset({"p1", "p2"}),
            position=Position("7", 3),
            ended=True,
            ready=True,
        ),
    ],
)
def test_shard_rows_read_as_they_were_created(shard: ShardRow) -> None:
    row = write_over(None, writes.create_shard(APP, shard)).row
    assert row is not None
    assert rows.read_shard(row) == shard


def test_a_claim_names_the_owner_and_begins_the_next_epoch() -> None:
    shard = rows.read_shard(after("claim what is free"))
    owner = (shard.owner, shard.owner_id, shard.claim, shard.epoch)
    assert owner == ("mine", "c1", "n", 7)
    assert shard.position == Position("500")


@pytest.mark.parametrize("name", ["release", "release without progress", "end"])
def test_giving_up_removes_the_owner_and_keeps_the_epoch(name: str) -> None:
    row = after(name)
    assert not row.keys() & {"owner", "owner_id", "claim"}
    assert row["epoch"] == 6
    assert row["ended"] == (name == "end")
    position = "500" if name == "release without progress" else "600"
    assert row["sequence_number"] == position


def test_pruned_rows_are_gone() -> None:
    for name in ("prune member", "prune shard"):
        case = CASES[name]
        assert write_over(next(iter(case.accepted.values())), case.write).row is None


numbers = st.integers(0, 10**56).map(str) | st.sampled_from(["9", "10", "99", "100"])
positions = st.builds(Position, numbers, st.none() | st.integers(0, 3))


def stored_at(position: Position | None) -> Row:
    """Return the shard's row as it is once this position has been committed."""
    row = without(SHARD_ROW, "sequence_number")
    if position is None:
        return row
    committed = write_over(row, writes.commit(APP, SHARD, position)).row
    assert committed is not None
    return committed


@given(st.none() | positions, positions)
def test_only_a_greater_position_is_committed(
    stored: Position | None, new: Position
) -> None:
    row, write = stored_at(stored), writes.commit(APP, SHARD, new)
    assert holds(write.condition, row) == (stored is None or new > stored)


def test_a_commit_may_bring_a_tip_with_it() -> None:
    tip = Tip(0.25, Position("600"))
    row = write_over(SHARD_ROW, writes.commit(APP, SHARD, Position("600"), tip)).row
    assert row is not None
    assert rows.read_shard(row).tip == tip


@given(st.none() | positions, positions)
def test_no_smaller_position_is_released(
    stored: Position | None, new: Position
) -> None:
    row, write = stored_at(stored), writes.release(APP, SHARD, new)
    assert holds(write.condition, row) == (stored is None or new >= stored)


@given(st.none() | positions, positions)
def test_a_released_position_reads_as_it_was_given(
    stored: Position | None, new: Position
) -> None:
    written = write_over(stored_at(stored), writes.release(APP, SHARD, new))
    assert written.row is not None
    after = rows.read_shard(written.row)
    assert after.position == (new if written.applied else stored)


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        (Position("99"), Position("100")),
        (Position("1" * 55), Position("2" * 55)),
        (Position("9" * 55), Position("1" + "0" * 55)),
        (Position("5", 1), Position("5", 2)),
        (Position("5", 999), Position("5")),
        (Position("5"), Position("6", 0)),
    ],
)
def test_longer_is_greater_then_text_then_part_and_whole_comes_last(
    smaller: Position, greater: Position
) -> None:
    assert holds(writes.commit(APP, SHARD, greater).condition, stored_at(smaller))
    assert not holds(writes.commit(APP, SHARD, smaller).condition, stored_at(greater))
