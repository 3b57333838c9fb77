"""Test what the contract suite doesn't say of the table and streams in memory."""

from __future__ import annotations

import random

import pytest

from kinesumer.errors import StoreThrottledError
from kinesumer.model.rows import Key, Value
from kinesumer.ports import AllOf, Write
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.kinesis.streams import AUTO
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from kinesumer.testing.simulation.event_loop import VirtualLoop

KEY = Key("p", "s")
ANY = AllOf()


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(random.Random(0))


@pytest.fixture
def store(loop: VirtualLoop) -> MemoryStore:
    return MemoryStore(loop.services)


@pytest.mark.parametrize(
    "write",
    [
        Write(Key("p", ""), ANY),
        Write(KEY, ANY, {"pk": "other"}),
        Write(KEY, ANY, {"n": 1}, remove=("n",)),
        Write(KEY, ANY, {"set": frozenset()}),
        Write(KEY, ANY, {"last_update": 1}),
    ],
)
def test_what_dynamodb_calls_invalid_is_refused(
    store: MemoryStore, write: Write
) -> None:
    with pytest.raises(ValueError, match=r"."):
        store.write_now(write)


@pytest.mark.parametrize(
    ("before", "values", "units"),
    [
        ({}, {"n": 1}, 1),
        ({}, {"t": "x" * 1100}, 2),
        ({"t": "x" * 2100}, {"t": "x"}, 3),
        ({}, {"last_update": "1"}, 2),
        ({"last_update": "1"}, {"last_update": "2"}, 3),
        ({"last_update": "1"}, {"last_update": "1"}, 1),
    ],
)
def test_writes_are_billed_by_size_and_index(
    store: MemoryStore,
    before: dict[str, Value],
    values: dict[str, Value],
    units: int,
) -> None:
    if before:
        store.write_now(Write(KEY, ANY, before))
    spent = store.usage.write_units
    store.write_now(Write(KEY, ANY, values))
    assert store.usage.write_units - spent == units


def test_a_limited_table_takes_one_seconds_units_at_once(
    loop: VirtualLoop, store: MemoryStore
) -> None:
    store.write_capacity = Bucket(10)
    for number in range(10):
        store.write_now(Write(KEY, ANY, {"n": number}))
    with pytest.raises(StoreThrottledError):
        store.write_now(Write(KEY, ANY, {"n": 10}))
    loop.real += 0.15
    store.write_now(Write(KEY, ANY, {"n": 11}))
    assert store.rows("p")[0]["n"] == 11


def test_reads_are_billed_by_4_kb_and_half_if_they_may_be_old(
    store: MemoryStore,
) -> None:
    store.write_now(Write(KEY, ANY, {"t": "x" * 5000}))
    store.get_now(KEY)
    store.get_now(KEY, consistent=False)
    store.query_now("p")
    store.get_now(Key("p", "none"))
    assert store.usage.read_units == 2 + 1 + 1 + 1


def test_old_reads_show_the_table_as_it_was(
    store: MemoryStore, loop: VirtualLoop
) -> None:
    store.write_now(Write(KEY, ANY, {"n": 1, "last_update": "1"}))
    loop.real = 2.0
    store.write_now(Write(KEY, ANY, {"n": 2}, remove=("last_update",)))
    store.write_now(Write(Key("p", "new"), ANY, {"n": 3}))
    assert [row["n"] for row in store.query_now("p")] == [3, 2]
    assert [row["n"] for row in store.query_now("p", age=1.0)] == [1]
    assert store.get_now(KEY, age=3.0) is None
    assert store.not_updated_since_now("p", "1", age=1.0) == [KEY]
    assert store.not_updated_since_now("p", "1") == []


def test_a_stream_with_auto_spreads_records_whatever_their_keys(
    loop: VirtualLoop,
) -> None:
    kinesis = MemoryKinesis(loop.services)
    stream = kinesis.create_stream("orders", 4)
    by_key = {kinesis.put("orders", b"x", "key")[0] for _ in range(8)}
    stream.distribution = AUTO
    spread = [kinesis.put("orders", b"x", key)[0] for key in ("key", "") * 4]
    assert len(by_key) == 1
    assert sorted(spread) == sorted([*stream.shards] * 2)
    assert not kinesis.source("orders").describe_now().routes_by_key
