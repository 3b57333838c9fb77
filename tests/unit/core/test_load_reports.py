"""Test that a member with many shards reports its busiest shards exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.load import work_of
from kinesumer.core.load_reports import report_loads
from kinesumer.model.loads import Load, LoadReport
from kinesumer.model.streams import ShardKey

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
