"""Generate GetRecords responses and KPL frames, valid and damaged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hypothesis import example
from hypothesis import strategies as st

from kinesumer.model.records import Fence, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from tests.support.aggregates import field, varint

T = TypeVar("T", bound="Callable[..., object]")

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
UPPER_HALF = Source(Fence(SHARD, 1), HASH_KEYS // 2, HASH_KEYS - 1)
NUMBER = "49660000000000000000000000000000000000000000000000000001"

numbers = st.integers(0, 10**56).map(str)
times = st.floats(0, 4e9).map(lambda seconds: round(seconds, 3))
keys = st.text(min_size=1, max_size=20)
payloads = st.binary(max_size=40)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """Return a record in the format of Kinesis, sometimes without a partition key."""
    entry = {
        "ApproximateArrivalTimestamp": draw(times),
        "Data": base64.b64encode(draw(payloads)).decode(),
        "PartitionKey": draw(keys),
        "SequenceNumber": draw(numbers),
    }
    if draw(st.booleans()):
        del entry["PartitionKey"]
    return entry


children = st.fixed_dictionaries(
    {
        "ShardId": st.text(max_size=8),
        "ParentShards": st.lists(st.text(max_size=4), max_size=2),
        "HashKeyRange": st.fixed_dictionaries(
            {
                "StartingHashKey": numbers | st.text(max_size=4),
                "EndingHashKey": numbers | st.text(max_size=4),
            }
        ),
    }
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Return a response that is valid except for one possibly damaged part."""
    answer: dict[str, Any] = {
        "MillisBehindLatest": draw(st.integers(0, 10**9)),
        "NextShardIterator": draw(st.text(max_size=10) | st.none()),
        "Records": draw(st.lists(entries(), max_size=5)),
    }
    if draw(st.booleans()):
        answer["ChildShards"] = draw(st.lists(children, max_size=2))
    if draw(st.booleans()):
        spoil(draw, answer)
    text = json.dumps(answer, separators=draw(st.sampled_from([(",", ":"), None])))
    return cut_up(draw, text.encode()) if draw(st.booleans()) else text.encode()


def with_examples(values: Iterable[object]) -> Callable[[T], T]:
    """Return a decorator that adds examples to a test of Hypothesis."""

    def add(test: T) -> T:
        for value in values:
            test = example(value)(test)
        return test

    return add


def spoil(draw: st.DrawFn, answer: dict[str, Any]) -> None:
    """Replace a value by another one, perhaps of another type."""
    objects = [answer, *answer["Records"], *answer.get("ChildShards", ())]
    damaged = draw(st.sampled_from(objects))
    name = draw(st.sampled_from(sorted(damaged)) | st.text(max_size=8))
    damaged[name] = draw(json_values)


def cut_up(draw: st.DrawFn, body: bytes) -> bytes:
    """Return a body with one piece removed, doubled or replaced."""
    first = draw(st.integers(0, len(body)))
    last = draw(st.integers(first, min(len(body), first + 30)))
    middle = draw(st.binary(max_size=6) | st.just(2 * body[first:last]))
    return body[:first] + middle + body[last:]


def user(key: int, data: bytes, length: int | None = None) -> bytes:
    """Return a user record of a frame."""
    return field(0x1A, b"\x08" + varint(key) + field(0x1A, data, length))
