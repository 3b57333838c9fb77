"""Test where a batch ends in each shard, given what probes found."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from kinesumer.core.batch_plan import (
    Chosen,
    Ended,
    Observed,
    Search,
    choose,
    confirmed,
    end,
    end_at,
    end_offset,
)
from kinesumer.core.batch_ranges import (
    Limits,
    Probed,
    ProbedRecord,
    Readable,
    Share,
)
from kinesumer.model.positions import (
    BEGINNING,
    END,
    After,
    At,
    End,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start

NOW = 1_000.0
SKEW = 60.0
AT = Start(type="AT_TIMESTAMP", timestamp=5.5)


def after(number: int, seen: float = 100.0) -> After:
    return After(Position(str(number)), seen)


def record(number: int, arrived_at: float) -> ProbedRecord:
    return ProbedRecord(Position(str(number)), arrived_at, 10)


def probed(*arrivals: float, tip: bool = True, **more: Any) -> Probed:
    """Return a probe of records whose numbers count from 1."""
    records = [record(i, arrived) for i, arrived in enumerate(arrivals, 1)]
    return Probed(records, "AAA=", tip, total_bytes=10 * len(records), **more)


def observed(
    name: str,
    found: Probed | None,
    position: ShardPosition = BEGINNING,
    *,
    closed: bool = False,
    target: ShardPosition | None = None,
    **more: Any,
) -> Observed:
    shard = Shard(name, 0, HASH_KEYS - 1, (), "9" if closed else None)
    readable = Readable(shard, position, 100.0, target)
    first = found.records[0].arrived_at if found and found.records else 100.0
    more = {"begin": position, "since": first, **more}
    return Observed(ShardKey("arn", name), readable, probed=found, **more)


# --- probes --------------------------------------------------------------------------


def test_a_probe_may_be_cut_at_a_record_as_if_that_were_the_tip() -> None:
    whole = probed(1.0, 2.0, 3.0, tip=False, closed=True)
    cut = whole.up_to(Position("2"))
    state = len(cut.records), cut.iterator, cut.at_tip, cut.closed
    assert state == (2, None, True, False)
    assert cut.total_bytes == 20
    exact = whole.up_to(Position("3"))
    assert (exact.iterator, exact.at_tip, exact.closed) == ("AAA=", True, False)
    assert whole.up_to(Position("7")) == whole


def test_a_probe_may_be_cut_at_a_time() -> None:
    whole = probed(1.0, 2.0, 3.0, tip=False)
    assert whole.before(4.0) == whole
    assert [item.arrived_at for item in whole.before(2.0).records] == [1.0]
    assert whole.bytes_up_to(whole.records[1]) == 20


# --- choosing ------------------------------------------------------------------------


def chosen(
    *shards: Observed,
    skew: float = SKEW,
    limits: Limits | None = None,
    **begins: float,
) -> tuple[float, dict[str, Share]]:
    arrivals = {ShardKey("arn", name): begin for name, begin in begins.items()}
    found = choose(shards, arrivals, limits or Limits(), skew, NOW)
    return found.until, {key.shard_id: share for key, share in found.shares.items()}


def test_without_a_backlog_each_shard_is_read_to_its_tip() -> None:
    until, shares = chosen(
        observed("a", probed(990.0, 991.0)),
        observed("b", probed(940.0, tip=False)),
        observed("c", probed()),
    )
    assert until == inf
    assert shares == {"a": Share(2), "b": Share(1, inf)}


def test_a_backlog_ends_at_the_same_time_in_all_shards() -> None:
    until, shares = chosen(
        observed("a", probed(100.0, 200.0, tip=False)), observed("b", probed(999.0))
    )
    assert until == NOW
    assert shares == {"a": Share(2, NOW), "b": Share(1)}


def test_a_batch_ends_where_the_first_children_begin() -> None:
    shards = (
        observed("a", probed(100.0, 290.0), closed=True),
        observed("b", probed(100.0, 310.0, tip=False), closed=True),
        observed("c", probed(100.0, 299.0, 301.0, 400.0)),
    )
    assert chosen(*shards, a=300.0, b=NOW) == (
        300.0,
        {"a": Share(2), "b": Share(1), "c": Share(2)},
    )
    # Children that begin within the skew are read together in the next batch.
    until, shares = chosen(*shards, a=300.0, b=350.0)
    assert until == 350.0
    assert shares == {"a": Share(2), "b": Share(2, 350.0), "c": Share(3)}


def test_arrival_times_before_an_end_may_be_out_of_order() -> None:
    late = observed("a", probed(100.0, 330.0, 290.0), closed=True)
    assert chosen(late, a=300.0)[1] == {"a": Share(3)}


def test_a_refused_shard_holds_the_others_back_but_a_lost_one_does_not() -> None:
    other = observed("b", probed(150.0, 170.0))
    refused = observed("a", None, since=100.0)
    assert chosen(refused, other) == (160.0, {"b": Share(1)})
    lost = observed("a", None, since=100.0, is_lost=True)
    assert chosen(lost, other)[1] == {"b": Share(2)}


def test_a_jump_is_no_backlog_and_takes_no_share() -> None:
    jump = observed("a", probed(999.0), since=950.0, is_jump=True)
    assert chosen(jump) == (inf, {})


def test_without_a_skew_only_limits_hold_a_batch_back() -> None:
    backlog = observed("a", probed(100.0, 200.0, 300.0, tip=False))
    assert chosen(backlog, skew=inf)[0] == inf
    assert chosen(backlog, skew=inf, limits=Limits(rows=2))[1] == {"a": Share(2)}


# --- ending --------------------------------------------------------------------------

SAMPLE = probed(300.0, 310.0, tip=False)


@pytest.mark.parametrize(
    ("shard", "share", "until", "expected"),
    [
        (observed("a", None, AT), None, inf, Ended(AT)),
        (observed("a", probed(), AT), None, inf, Ended(AT)),
        (observed("a", probed(), AT, closed=True), None, inf, Ended(END)),
        (observed("a", probed(closed=True), AT), None, inf, Ended(END)),
        (observed("a", probed(tip=False), AT, closed=True), None, inf, Ended(AT)),
        (observed("a", SAMPLE, AT), Share(0), 200.0, Ended(AT, 700.0)),
        (observed("a", SAMPLE), Share(2, inf), inf, Search(inf)),
        (observed("a", SAMPLE), Share(2, 400.0), 400.0, Search(400.0)),
        (observed("a", SAMPLE, closed=True), Share(2, 400.0), 400.0, Ended(END)),
        (observed("a", SAMPLE, closed=True), Share(2, 340.0), 340.0, Search(340.0)),
        (observed("a", SAMPLE, target=END), Share(2, inf), inf, Ended(END)),
        (observed("a", SAMPLE, target=after(9)), Share(2, inf), inf, Ended(after(9))),
        (observed("a", SAMPLE, target=after(9)), Share(2, 99.0), 99.0, Search(99.0)),
    ],
)
def test_the_end_is_known_or_must_be_searched(
    shard: Observed, share: Share | None, until: float, expected: Ended | Search
) -> None:
    shares = {} if share is None else {shard.key: share}
    assert end(shard, Chosen(shares, until), 350.0, NOW) == expected


def ended(shard: Observed, share: Share, until: float = inf) -> Ended:
    found = end(shard, Chosen({shard.key: share}, until), inf, NOW)
    assert isinstance(found, Ended)
    return found


def test_a_batch_ends_at_the_last_record_of_its_share() -> None:
    last = SAMPLE.records[0]
    end_of_one = Ended(After(last.position, 300.0), NOW - 300.0, last)
    assert ended(observed("a", SAMPLE), Share(1)) == end_of_one


def test_at_the_tip_no_later_record_had_arrived_some_time_ago() -> None:
    at_tip = ended(observed("a", probed(300.0)), Share(1))
    assert at_tip == Ended(after(1, NOW - 60.0), last=record(1, 300.0))
    just_now = ended(observed("a", probed(990.0)), Share(1))
    assert just_now.position == after(1, 990.0)
    # After a target, later records may exist.
    in_target = observed("a", probed(300.0), target=after(1))
    assert ended(in_target, Share(1)) == Ended(after(1, 300.0), 0.0, record(1, 300.0))


def test_a_closed_shard_ends_when_its_last_record_arrived() -> None:
    position = ended(observed("a", probed(300.0), closed=True), Share(1)).position
    assert (position, getattr(position, "seen", 0.0)) == (END, 300.0)


def test_a_search_does_not_go_beyond_the_target() -> None:
    shard = observed("a", SAMPLE, target=after(5))
    assert end_at(shard, record(9, 400.0), NOW) == Ended(after(5))
    found = end_at(shard, record(4, 400.0), NOW)
    assert found == Ended(after(4, 400.0), 600.0, record(4, 400.0))


def test_a_jump_ends_a_batch_unless_other_shards_have_a_backlog() -> None:
    jump = observed("a", probed(999.0, tip=False), after(1), is_jump=True)
    assert end(jump, Chosen({}, inf), inf, NOW) == Ended(
        after(1, 999.0), 1.0, record(1, 999.0)
    )
    assert end(jump, Chosen({}, 500.0), inf, NOW) == Ended(after(1))


# --- offsets -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "stale", "begins", "expected"),
    [
        (after(3), False, False, after(3, 940.0)),
        (after(3, 990.0), False, False, after(3, 990.0)),
        (BEGINNING, False, False, None),
        (BEGINNING, True, False, Start(type="AT_TIMESTAMP", timestamp=940.0)),
        (AT, False, True, Start(type="AT_TIMESTAMP", timestamp=940.0)),
    ],
)
def test_a_quiet_position_is_renewed(
    position: ShardPosition, stale: bool, begins: bool, expected: ShardPosition | None
) -> None:
    quiet = observed("a", probed(), position, is_quiet=True)
    assert confirmed(quiet, is_stale=stale, begins=begins, now=NOW) == expected
    busy = observed("a", probed(), position)
    assert confirmed(busy, is_stale=stale, begins=begins, now=NOW) is None


def test_an_offset_has_the_ends_and_where_the_batch_begins_instead() -> None:
    first = At("1", 300.0)
    before = StreamOffset(7.0, {"a": AT, "b": after(1), "c": after(5), "d": after(8)})
    ends = {
        "a": (observed("a", SAMPLE, AT, begin=first), Ended(after(2))),
        "b": (observed("b", SAMPLE, after(1)), Ended(END)),
        "c": (observed("c", probed(), before.shards["c"]), Ended(before.shards["c"])),
    }
    shards = [Shard(name, 0, HASH_KEYS - 1, ()) for name in "abcd"]
    found = end_offset(before, shards, ends, {"d"}, {"c": after(5, 940.0)})
    assert found == StreamOffset(
        7.0, {"a": after(2), "b": End(), "c": after(5, 940.0)}, 0.0, {"a": first}
    )
