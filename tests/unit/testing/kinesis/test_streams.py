"""Test that shards cover the whole hash space, and that buckets limit rates."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.kinesis.limits import Bucket, Limits
from kinesumer.testing.kinesis.shards import hash_key
from kinesumer.testing.kinesis.streams import Stream

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def stream_of(shards: int) -> Stream:
    stream = Stream(ARN, shards, 100.0, Limits(), mode="PROVISIONED")
    stream.settle(100.0)
    return stream


def tiles(stream: Stream) -> bool:
    shards = stream.open
    return (
        shards[0].first_hash == 0
        and shards[-1].last_hash == HASH_KEYS - 1
        and all(a.last_hash + 1 == b.first_hash for a, b in pairwise(shards))
    )


@given(st.integers(1, 12), st.lists(st.integers(1, 12), max_size=4))
def test_scaling_leaves_as_many_equal_shards_as_asked_for(
    first: int, targets: list[int]
) -> None:
    stream = stream_of(first)
    for target in targets:
        stream.rescale(target, 101.0)
        sizes = {shard.last_hash - shard.first_hash for shard in stream.open}
        assert len(stream.open) == target
        assert tiles(stream)
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 6), st.data())
def test_any_chain_of_splits_and_merges_tiles_the_hash_space(
    shards: int, data: st.DataObject
) -> None:
    stream = stream_of(shards)
    for step in range(data.draw(st.integers(0, 8))):
        place = data.draw(st.integers(0, len(stream.open) - 1))
        shard = stream.open[place]
        if place + 1 < len(stream.open) and data.draw(st.booleans()):
            stream.merge(stream.open[place + 1], shard, 101.0 + step)
        else:
            middle = (shard.first_hash + shard.last_hash + 1) // 2
            stream.split(shard, middle, 101.0 + step)
        assert tiles(stream)


@given(st.integers(1, 5), st.integers(0, HASH_KEYS - 1))
def test_a_hash_key_goes_to_the_open_shard_that_covers_it(
    shards: int, key: int
) -> None:
    stream = stream_of(shards)
    stream.split(stream.open[0], 12345, 101.0)
    found = stream.route(key)
    assert found.first_hash <= key <= found.last_hash
    assert found.closed_at is None


def test_sequence_numbers_have_56_digits_and_grow_from_parent_to_child() -> None:
    stream = stream_of(2)
    left, right = stream.open
    before = [stream.append(shard, b"", "k", 101.0) for shard in (left, right)]
    stream.merge(left, right, 102.0)
    child = stream.open[0]
    after = stream.append(child, b"", "k", 103.0)
    ends = [shard.shard.ending_sequence_number or "" for shard in (left, right)]
    start = child.first_number
    numbers = [*before, *ends, start, after]
    assert {len(number) for number in numbers} == {56}
    assert max(before) < min(ends) < max(ends) < start < after


def test_sequence_numbers_differ_in_digits_that_a_dynamodb_number_would_lose() -> None:
    stream = stream_of(1)
    one, two = (stream.append(stream.open[0], b"", "k", 1.0) for _ in range(2))
    assert one[:38] == two[:38]


def test_partition_keys_are_hashed_as_kinesis_does() -> None:
    assert hash_key("key") == 0x3C6E0B8A9C15224A8228B9A98CA1531D


@pytest.mark.parametrize(
    ("rate", "taken"),
    [
        pytest.param(
            5, [(0.0, 1, True)] * 5 + [(0.0, 1, False)], id="a second's worth"
        ),
        pytest.param(
            5,
            [*[(0.0, 1, True)] * 5, (0.1, 1, False), (0.2, 1, True), (0.2, 1, False)],
            id="what was taken flows back at the rate",
        ),
        pytest.param(
            5,
            [(0.0, 1, True), *[(3600.0, 1, True)] * 5, (3600.0, 1, False)],
            id="a pause saves up no more than one second",
        ),
        pytest.param(
            10,
            [(0.0, 30, True), (2.9, 1, False), (3.2, 1, True), (3.2, 30, False)],
            id="an amount above the rate passes only from a full bucket",
        ),
        pytest.param(math.inf, [(0.0, 1e12, True)] * 3, id="unlimited"),
    ],
)
def test_a_bucket_limits_what_is_taken(
    rate: float, taken: list[tuple[float, float, bool]]
) -> None:
    bucket = Bucket(rate)
    for now, amount, is_possible in taken:
        assert bucket.take(amount, now) is is_possible


def test_overdrawing_closes_for_the_whole_amount() -> None:
    bucket = Bucket(2)
    assert bucket.holds(0, 0.0)
    bucket.spend(10)
    assert not bucket.holds(0, 4.9)
    assert bucket.holds(0, 5.1)
