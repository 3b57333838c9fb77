"""Test that pages read as columns give the same rows as record by record."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import BEGINNING, END, After, At, Position, ShardPosition
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey, Start
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.spark.rows import (
    Columns,
    RangeFilter,
    RecordRows,
    Slice,
    TableRows,
    rows_of,
)
from kinesumer.wire.put_records import Entry, aggregate
from kinesumer.wire.records import Body, decode_page
from tests.support.cbor import needs_compiled, page, record
from tests.support.spark_reading import schema

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
ALL = Columns(schema(*COLUMNS))


def rows_in(body: Body, *, deaggregate: bool = True) -> list[dict[str, object]]:
    return listed(rows_of(decode_page(body), deaggregate=deaggregate))


def listed(rows: TableRows | RecordRows) -> list[dict[str, object]]:
    batch = rows.batch(SHARD, ALL, Slice(0, len(rows)))
    batch.validate(full=True)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def records(chance: random.Random) -> list[dict[str, object]]:
    count = chance.choice([1, 2, 3, 30])
    size = chance.choice([0, 1, 23, 24, 255, 256, 1000, 70_000])
    found = [
        record(
            10 ** chance.choice([5, 55]) + place,
            chance.randbytes(chance.randint(size // 2, size)),
            PartitionKey=chance.choice(["", "k", "é{},:[]", "k" * 256]),
        )
        for place in range(count)
    ]
    names = chance.sample([*found[0]], len(found[0]))
    return [{name: each[name] for name in names} for each in found]


def with_mixed_keys() -> list[dict[str, object]]:
    found = [record(number, b"data") for number in range(30)]
    for each in found[:7]:
        del each["PartitionKey"]
    return found


@needs_compiled
@pytest.mark.parametrize(
    "given",
    [
        *(records(random.Random(seed)) for seed in range(20)),
        with_mixed_keys(),
        with_mixed_keys()[:7],
        [record(1, b"x", EncryptionType="KMS")],
    ],
)
def test_any_layout_reads_alike_in_columns(given: list[dict[str, object]]) -> None:
    body = page(given)
    rows = rows_of(decode_page(body), deaggregate=True)
    decoded = decode_page(body).records
    assert isinstance(rows, TableRows)
    assert listed(rows) == listed(RecordRows(decoded, deaggregate=True))
    sizes = [
        len(each.data) + len((each.partition_key or "").encode()) for each in decoded
    ]
    assert rows.payload == sum(sizes)
    assert rows.arrived(0) == decoded[0].approximate_arrival_timestamp
    assert rows.number(0) == decoded[0].sequence_number


@needs_compiled
def test_aggregates_are_opened_unless_asked_for_raw() -> None:
    packed = aggregate([Entry(b"a", "k"), Entry(b"b", "l", "7")])
    body = page([record(1, b"\xf3\x89"), record(2, packed)])
    assert [row["data"] for row in rows_in(body)] == [b"\xf3\x89", b"a", b"b"]
    assert [row["data"] for row in rows_in(body, deaggregate=False)][1] == packed


# --- in any format -------------------------------------------------------------------


def test_a_page_in_json_is_read_record_by_record() -> None:
    body = (
        b'{"Records":[{"SequenceNumber":"12","ApproximateArrivalTimestamp":'
        b'1732531200.801,"Data":"aGVsbG8=","PartitionKey":"user-5"}],'
        b'"NextShardIterator":"AAA="}'
    )
    [row] = rows_in(body)
    assert row.pop("arrived_at").timestamp() == 1732531200.801  # type: ignore[attr-defined]
    assert row == {
        "stream": "orders",
        "stream_arn": SHARD.stream_arn,
        "shard_id": "shard-7",
        "sequence_number": "12",
        "sub_sequence_number": None,
        "partition_key": "user-5",
        "explicit_hash_key": None,
        "data": b"hello",
    }


@needs_compiled
def test_a_page_becomes_columns_without_pandas() -> None:
    """Importing pandas takes more CPU than the rest of a small query's task."""
    pytest.importorskip("pandas")
    program = (
        "import sys; from tests.unit.spark.test_rows import *;"
        "body = page([record(number, b'x') for number in range(9)]);"
        "rows = rows_of(decode_page(body), deaggregate=True);"
        "assert rows.batch(SHARD, ALL, Slice(0, 9)).num_rows == 9;"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.stdout == b"False\n", done.stderr.decode()


@needs_compiled
def test_a_page_that_looks_like_an_end_has_its_records_as_objects() -> None:
    body = page([record(1, b"a"), record(2, b"b")], NextShardIterator=None)
    assert [each.data for each in decode_page(body).records] == [b"a", b"b"]
    assert len(rows_in(body)) == 2


@needs_compiled
def test_only_requested_columns_are_built() -> None:
    columns = Columns(schema("data", "shard_id"))
    rows = rows_of(decode_page(page([record(1, b"a")])), deaggregate=True)
    batch = rows.batch(SHARD, columns, Slice(0, 1))
    assert batch.to_pylist() == [{"data": b"a", "shard_id": "shard-7"}]


def test_a_schema_of_unknown_columns_is_refused() -> None:
    for wrong, message in (
        (StructType().add("color", StringType()), r"'color'.*sequence_number"),
        (StructType().add("data", LongType()), r"'data'.*bigint.*binary"),
        (StructType(), "the schema has no columns"),
        (StructType().add("Data", BinaryType()), "names are lower-case: data"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Columns(wrong)


def filter_of(first: ShardPosition, last: ShardPosition) -> RangeFilter:
    return RangeFilter(ShardRange("arn", "shardId-0", first, last, 86400))


def numbered(*numbers: int) -> RecordRows:
    """Return records that arrived at the seconds of their numbers."""
    records = [
        Record(str(n), b"", approximate_arrival_timestamp=float(n)) for n in numbers
    ]
    return RecordRows(records, deaggregate=True)


def after(number: int, sub: int | None = None) -> After:
    return After(Position(str(number), sub), 1.0)


PARTS_OF_9, PARTS_OF_11 = Position("9", 3), Position("11", 1)


@pytest.mark.parametrize(
    ("first", "last", "taken"),
    [
        (BEGINNING, END, Slice(0, 4)),
        (BEGINNING, after(10), Slice(0, 3)),
        (after(8), after(10), Slice(1, 3)),
        (after(11), END, Slice(0, 0)),
        (after(9, 3), after(10), Slice(1, 3, PARTS_OF_9)),
        (after(9), after(11, 1), Slice(2, 4, None, PARTS_OF_11)),
        (At("9", 1.0), after(10), Slice(1, 3)),
        (Start(type="AT_TIMESTAMP", timestamp=9.5), END, Slice(2, 4)),
        (Start(type="AT_TIMESTAMP", timestamp=99.0), END, Slice(0, 0)),
    ],
)
def test_records_after_the_beginning_up_to_the_end_are_taken(
    first: ShardPosition, last: ShardPosition, taken: Slice
) -> None:
    assert filter_of(first, last).take(numbered(8, 9, 10, 11)) == taken


def test_a_range_continues_with_the_next_page_until_its_last_record() -> None:
    given = filter_of(after(8), after(11))
    assert given.take(numbered(8, 9)) == Slice(1, 2)
    assert (given.after, given.reached) == (Position("9"), False)
    assert given.take(numbered(10, 11, 12)) == Slice(0, 2)
    assert (given.reached, given.passed) == (True, False)
    assert filter_of(after(9), after(9)).reached


@pytest.mark.parametrize(("last", "passed"), [(after(9), True), (after(12), False)])
def test_a_last_record_that_is_missing_is_passed_by_a_later_one(
    last: After, passed: bool
) -> None:
    given = filter_of(BEGINNING, last)
    given.take(numbered(8, 10))
    assert (given.reached, given.passed) == (False, passed)


@pytest.mark.parametrize(("numbers", "missing"), [((8, 9), False), ((10, 11), True)])
def test_a_first_record_that_is_missing_is_noticed(
    numbers: tuple[int, ...], missing: bool
) -> None:
    given = filter_of(At("9", 1.0), END)
    given.take(numbered(*numbers))
    assert given.is_first_missing is missing


def test_nothing_comes_after_a_shards_end() -> None:
    with pytest.raises(ValueError, match="shardId-0: nothing comes after"):
        filter_of(END, END)
