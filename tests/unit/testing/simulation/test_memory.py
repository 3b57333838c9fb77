"""Test the conditions and request costs of the table and the streams in memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceThrottledError,
    StateStoreMissingError,
    StoreThrottledError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import Start
from kinesumer.ports import AllOf, AnyOf, Compare, Write
from kinesumer.testing.kinesis.streams import AUTO
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.memory_store import holds

if TYPE_CHECKING:
    from kinesumer.ports import Condition

ROW: Row = {"pk": "p", "sk": "s", "n": 5, "t": "b", "yes": True, "set": frozenset("ab")}
KEY = Key("p", "s")
ANY = AllOf()


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(random.Random(0))


@pytest.fixture
def store(loop: VirtualLoop) -> MemoryStore:
    return MemoryStore(loop.services)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Compare("n", "=", 5), True),
        (Compare("n", "=", "5"), False),
        (Compare("yes", "=", 1), False),
        (Compare("n", "<", 6), True),
        (Compare("n", "<=", 5), True),
        (Compare("n", "<", 5), False),
        (Compare("n", "<", "6"), False),
        (Compare("t", "<", "c"), True),
        (Compare("t", "<", 9), False),
        (Compare("is_cancelled", "<", 9), False),
        (Compare("is_cancelled", "=", 9), False),
        (Compare("is_cancelled", "absent"), True),
        (Compare("is_cancelled", "exists"), False),
        (Compare("t", "size=", 1), True),
        (Compare("t", "size<", 1), False),
        (Compare("is_cancelled", "size<", 1), False),
        (Compare("n", "size<", 9), False),
        (Compare("set", "size=", 2), True),
        (Compare("set", "=", frozenset("ba")), True),
        (AllOf(Compare("n", "=", 5), Compare("t", "=", "x")), False),
        (AnyOf(Compare("n", "=", 4), Compare("t", "=", "b")), True),
        (AnyOf(), False),
    ],
)
def test_conditions_hold_as_in_dynamodb(condition: Condition, expected: bool) -> None:
    assert holds(condition, ROW) is expected


def test_a_refused_write_returns_the_row_that_refused_it(store: MemoryStore) -> None:
    store.write_now(Write(KEY, ANY, {"n": 1}))
    written = store.write_now(Write(KEY, Compare("pk", "absent"), {"n": 2}))
    assert written == (False, {"pk": "p", "sk": "s", "n": 1})


def test_a_put_drops_what_it_does_not_name(store: MemoryStore) -> None:
    store.write_now(Write(KEY, ANY, {"n": 1, "t": "x"}))
    written = store.write_now(Write(KEY, ANY, {"n": 2}, replace=True))
    assert written.row == {"pk": "p", "sk": "s", "n": 2}


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
    store.write_units_per_second = 10
    for number in range(8):
        store.write_now(Write(KEY, ANY, {"n": number}))
    store.write_now(Write(KEY, ANY, {"t": "x" * 1100}))
    with pytest.raises(StoreThrottledError):
        store.write_now(Write(KEY, ANY, {"n": 9}))
    loop.real += 0.15
    store.write_now(Write(KEY, ANY, {"t": "x"}))
    with pytest.raises(StoreThrottledError):
        store.write_now(Write(KEY, ANY, {"n": 9}))
    assert store.throttled_writes == 2
    assert store.rows("p")[0]["t"] == "x"
    store.write_units_per_second = None
    store.write_now(Write(KEY, ANY, {"n": 9}))


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


def test_a_query_takes_both_bounds_in(store: MemoryStore) -> None:
    for sk in "abcd":
        store.write_now(Write(Key("p", sk), ANY))
    assert [row["sk"] for row in store.query_now("p", first="b", last="c")] == [
        "b",
        "c",
    ]


async def test_a_deleted_table_answers_nothing(store: MemoryStore) -> None:
    store.delete_table()
    with pytest.raises(StateStoreMissingError):
        await store.verify()


@pytest.fixture
def kinesis(loop: VirtualLoop) -> MemoryKinesis:
    made = MemoryKinesis(loop.services)
    made.create_stream("s", 2)
    return made


FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def test_a_closed_shard_ends_with_its_children(kinesis: MemoryKinesis) -> None:
    source = kinesis.source("s")
    _, number = kinesis.put("s", b"a", explicit_hash_key=0)
    child = kinesis.merge("s", FIRST, SECOND)
    _, later = kinesis.put("s", b"b", explicit_hash_key=0)
    page = source.get_records_now(
        source.get_iterator_now(FIRST, Start.TRIM_HORIZON), 10
    )
    assert [record.data for record in page.records] == [b"a"]
    assert page.next_iterator is None
    assert [made.shard_id for made in page.children] == [child]
    assert page.children[0].parents == (FIRST, SECOND)
    assert Position(number) < Position(later)


def test_an_iterator_goes_on_after_a_record_or_at_it_for_its_parts(
    kinesis: MemoryKinesis,
) -> None:
    source = kinesis.source("s")
    numbers = [kinesis.put("s", b"", explicit_hash_key=0)[1] for _ in range(3)]

    def read(after: Position) -> list[str]:
        page = source.get_records_now(source.get_iterator_now(FIRST, after), 10)
        return [record.sequence_number for record in page.records]

    assert read(Position(numbers[1])) == numbers[2:]
    assert read(Position(numbers[1], 4)) == numbers[1:]


def test_iterators_expire_after_five_minutes(
    kinesis: MemoryKinesis, loop: VirtualLoop
) -> None:
    source = kinesis.source("s")
    iterator = source.get_iterator_now(FIRST, Start.LATEST)
    loop.real = 301.0
    with pytest.raises(ExpiredIteratorError):
        source.get_records_now(iterator, 10)


def test_a_sixth_read_within_a_second_is_throttled(kinesis: MemoryKinesis) -> None:
    source = kinesis.source("s")
    iterator = source.get_iterator_now(FIRST, Start.LATEST)
    for _ in range(5):
        source.get_records_now(iterator, 10)
    with pytest.raises(SourceThrottledError):
        source.get_records_now(iterator, 10)


def test_retention_takes_records_and_then_closed_shards(
    kinesis: MemoryKinesis, loop: VirtualLoop
) -> None:
    source = kinesis.source("s")
    _, number = kinesis.put("s", b"old", explicit_hash_key=0)
    kinesis.split("s", FIRST)
    loop.real = 10.0
    kinesis.put("s", b"new", explicit_hash_key=1 << 127)
    loop.real = 23 * 3600.0
    kinesis.apply_retention()
    assert len(source.list_shards_now()) == 4
    loop.real = 24 * 3600.0 + 5
    kinesis.apply_retention()
    assert FIRST not in [shard.shard_id for shard in source.list_shards_now()]
    with pytest.raises(ShardMissingError):
        source.get_iterator_now(FIRST, Position(number))
    with pytest.raises(TrimmedPositionError):
        loop.real += 60
        kinesis.apply_retention()
        source.get_iterator_now(SECOND, Position(number))


def test_the_consumers_of_one_stream_are_listed(kinesis: MemoryKinesis) -> None:
    for stream, name in (("orders", "billing"), ("payments", "audit")):
        kinesis.create_stream(stream, 1)
        source = kinesis.source(stream)
        source.call_of_consumer("RegisterStreamConsumer", {"ConsumerName": name})

    listed = kinesis.source("orders").call_of_consumer("ListStreamConsumers", {})

    assert listed is not None
    assert [(c["ConsumerName"], c["ConsumerStatus"]) for c in listed["Consumers"]] == [
        ("billing", "CREATING")
    ]


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
