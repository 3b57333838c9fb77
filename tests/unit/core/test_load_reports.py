"""Test that a member with many shards reports its busiest shards exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.load import work_of
from kinesumer.core.load_reports import load_reason, report_loads
from kinesumer.core.plan import Work, make_plan
from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey

A, B = "stream a", "stream b"


def loads(*seconds: float, arn: str = A) -> dict[tuple[ShardKey, int], Load]:
    """Return the loads of successive shards, by key and starting hash key."""
    return {
        (ShardKey(arn, f"shardId-{at}"), 10 * at): Load(0.0, 0.0, each)
        for at, each in enumerate(seconds)
    }


def test_a_few_shards_are_reported_singly_and_in_order() -> None:
    given = loads(0.5, arn=B) | dict(reversed(loads(0.1, 0.2).items()))
    assert report_loads(given, 3) == [
        LoadReport(A, 0, 1, Load(0.0, 0.0, 0.1)),
        LoadReport(A, 10, 1, Load(0.0, 0.0, 0.2)),
        LoadReport(B, 0, 1, Load(0.0, 0.0, 0.5)),
    ]
    assert report_loads({}, 3) == []


def test_a_busy_shard_is_reported_singly_and_the_others_together() -> None:
    found = report_loads(loads(*[0.25] * 4, 10.0, *[0.25] * 8), 4)
    assert [report.shards for report in found] == [4, 1, 4, 4]
    assert [report.first_hash for report in found] == [0, 40, 50, 90]
    assert [report.load[2] for report in found] == [1.0, 10.0, 1.0, 1.0]


def test_each_stream_has_a_report() -> None:
    given = loads()
    for number in range(12):
        given |= loads(0.1, 0.1, arn=f"stream {number:02}")
    assert [report.shards for report in report_loads(given, 10)] == [2] * 12


@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.1, 5.0]), max_size=60),
    st.lists(st.sampled_from([0.0, 0.01, 1.0]), max_size=60),
    st.integers(2, 30),
)
def test_reports_cover_all_shards_and_share_the_work(
    first: list[float], second: list[float], most: int
) -> None:
    given = loads(*first) | loads(*second, arn=B)
    found = report_loads(given, most)
    assert len(found) == min(most, len(given)) or len(found) < most
    ordered = sorted(given, key=lambda shard: (shard[0].stream_arn, shard[1]))
    total = sum(map(work_of, given.values()))
    for report in found:
        covered, ordered = ordered[: report.shards], ordered[report.shards :]
        assert (covered[0][0].stream_arn, covered[0][1]) == report[:2]
        assert {key.stream_arn for key, _ in covered} == {report.stream_arn}
        sums = map(sum, zip(*(given[shard] for shard in covered), strict=True))
        assert report.load == pytest.approx(Load(*sums))
        if report.shards > 1:
            work = sum(work_of(given[shard]) for shard in covered)
            assert work <= 2 * total / (most - 1) + 1
    assert not ordered


STREAMS = frozenset({"a"})


def starts(count: int) -> dict[str, list[int]]:
    return {"a": [number * HASH_KEYS // count for number in range(count)]}


def ranges(count: int, *sizes: int) -> list[tuple[Interval, ...]]:
    """Return successive ranges with these numbers of ``count`` shards."""
    cuts = [sum(sizes[:at]) * HASH_KEYS // count for at in range(len(sizes) + 1)]
    return [
        (Interval("a", first, end - 1),) if first < end else ()
        for first, end in pairwise(cuts)
    ]


def members(count: int, *sizes: int) -> list[MemberRow]:
    """Return clients with these numbers of successive shards."""
    return [
        MemberRow(f"c{number}", f"s{number}", streams=STREAMS, range=range_)
        for number, range_ in enumerate(ranges(count, *sizes))
    ]


def reason(
    clients: Sequence[MemberRow],
    *work: int,
    is_known: bool = True,
    unknown: int = 0,
) -> str:
    shards = starts(len(work))
    found = Work({"a": work}, is_known)
    return load_reason(clients, shards, found, unknown)


def test_ranges_are_kept_while_no_client_has_much_more_than_its_share() -> None:
    text = reason(members(6, 3, 3), 36, 37, 37, 30, 30, 30)
    assert text == (
        "ranges are kept: no client with several shards has more than 12 % above its "
        "share of the work"
    )


def test_a_hot_shard_alone_makes_no_client_too_busy() -> None:
    text = reason(members(5, 1, 2, 2), 900, 10, 10, 10, 10)
    assert text.startswith("ranges are kept: no client with several shards")


def test_clients_beside_a_hot_shard_have_much_less_than_a_share() -> None:
    hot_first = 900, *[10] * 8
    assert reason(members(9, 1, 4, 4), *hot_first).startswith("ranges are kept")
    assert reason(members(9, 1, 6, 2), *hot_first).startswith(
        "shards move to lower the most work of a client with several shards"
    )


def test_ranges_are_kept_if_others_are_hardly_better() -> None:
    kept = (
        "ranges are kept: other ranges would lower the most work of a client with "
        "several shards only "
    )
    assert reason(members(53, 52, 1), 300, 300, *[1] * 50, 500) == (
        f"{kept}from 114 % to 106 % of its share, and move 87 % of the shards"
    )
    assert reason(members(6, 2, 4), 1000, 5, 5, 1000, 600, 150) == (
        f"{kept}from 128 % to 127 % of its share"
    )
    assert reason(members(3, 2, 1), 20, 20, 20) == (
        "ranges are kept: the busiest client with several shards has 134 % of its "
        "share of the work, and no other successive shards would lower that"
    )


def test_shards_move_if_that_lowers_the_most_work() -> None:
    text = reason(members(12, 6, 6), *[20] * 6, *[10] * 6)
    assert text == (
        "shards move to lower the most work of a client with several shards from 134 % "
        "to 112 % of its share: 9 % of the shards"
    )


def test_unknown_loads_keep_the_ranges() -> None:
    clients = members(4, 1, 3)
    work = 500, 10, 10, 10
    text = reason(clients, *work, is_known=False, unknown=3)
    assert "the load of 3 shards isn't known yet" in text
    text = reason(clients, *work, is_known=False, unknown=1)
    assert "the load of 1 shard isn't known yet" in text


def test_a_client_that_joins_takes_shards_although_the_ranges_are_even() -> None:
    joined = MemberRow("c9", "s9", streams=STREAMS)
    text = reason([*members(8, 4, 4), joined], *[10] * 8, is_known=False, unknown=8)
    assert text.startswith("clients have joined, left or changed")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_limit_moves_shards(is_known: bool) -> None:
    first, second = members(8, 4, 4)
    limited = first._replace(max_shards=2)
    text = reason([limited, second], *[10] * 8, is_known=is_known, unknown=8)
    assert text == "shards move so that no client has more than its max_shards"


def test_labels_are_named() -> None:
    clients = [
        m._replace(label=label)
        for m, label in zip(members(8, 2, 2, 2, 2), "xxyy", strict=True)
    ]
    text = reason(clients, *[30] * 4, *[10] * 4)
    assert "the most work of a label from 150 %" in text


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    st.integers(1, 5),
    st.booleans(),
)
def test_ranges_are_said_to_be_kept_exactly_if_the_plan_keeps_them(
    work: list[int], count: int, is_known: bool
) -> None:
    each, more = divmod(len(work), count)
    clients = members(len(work), *(each + (at < more) for at in range(count)))
    known = Work({"a": work}, is_known)
    plan = make_plan(clients, starts(len(work)), "load", STREAMS, known)
    is_kept = all(plan[m.client_id].range == m.range for m in clients)
    text = load_reason(clients, starts(len(work)), known, 0)
    assert text.startswith("ranges are kept") is is_kept
