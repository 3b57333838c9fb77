"""Test that pages read as columns give the same rows as record by record."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from kinesumer.errors import ConfigurationError, SourceUnavailableError
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
from kinesumer.wire import records as wire_records
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.put_records import Entry, aggregate
from kinesumer.wire.records import Body, decode_page
from tests.support.cbor import needs_compiled, page, record
from tests.support.spark_reading import schema

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
ALL = Columns(schema(*COLUMNS))


def rows_in(body: Body, *, deaggregate: bool = True) -> list[dict[str, object]]:
    rows = rows_of(decode_page(body), deaggregate=deaggregate)
    return listed(rows)


def listed(rows: TableRows | RecordRows) -> list[dict[str, object]]:
    batch = rows.batch(SHARD, ALL, Slice(0, len(rows)))
    batch.validate(full=True)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def one_by_one(body: Body) -> list[dict[str, object]]:
    return listed(RecordRows(decode_page(body).records, deaggregate=True))


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


def indefinite(body: bytes) -> bytes:
    """Return a page whose records are an array without a length."""
    head = b"\xa3" + encode("Records")
    assert body.startswith(head)
    size = {0x98: 2, 0x99: 3}.get(body[len(head)], 1)
    rest = body[len(head) + size :]
    end = rest.index(encode("NextShardIterator"))
    return head + b"\x9f" + rest[:end] + b"\xff" + rest[end:]


@needs_compiled
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("frame", [bytes, indefinite])
def test_any_layout_reads_alike_in_columns(
    seed: int, frame: Callable[[bytes], bytes]
) -> None:
    body = frame(page(records(random.Random(seed))))
    found = decode_page(body)
    rows = rows_of(found, deaggregate=True)
    assert found._replace(records=[]) == decode_page(body)._replace(records=[])
    assert isinstance(rows, TableRows)
    assert listed(rows) == one_by_one(body)
    payload = sum(
        len(each.data) + len((each.partition_key or "").encode())
        for each in decode_page(body).records
    )
    assert rows.payload == payload
    assert rows.arrived(0) == decode_page(body).records[0].approximate_arrival_timestamp
    assert rows.number(0) == decode_page(body).records[0].sequence_number


@needs_compiled
@pytest.mark.parametrize("frame", [bytes, indefinite])
def test_records_without_keys_read_alike_in_columns(
    frame: Callable[[bytes], bytes],
) -> None:
    found = [record(number, b"data") for number in range(30)]
    for each in found:
        del each["PartitionKey"]
    body = frame(page(found))
    rows = rows_of(decode_page(body), deaggregate=True)
    assert isinstance(rows, TableRows)
    assert {row["partition_key"] for row in listed(rows)} == {None}
    assert listed(rows) == one_by_one(body)
    assert rows.payload == 30 * len(b"data")
    for place in (0, 7):  # a producer may give keys, and another none
        mixed = [dict(each) for each in found]
        mixed[place]["PartitionKey"] = "key"
        assert rows_in(frame(page(mixed))) == one_by_one(page(mixed))


@given(seed=st.integers(0, 50), place=st.integers(0), byte=st.integers(0, 255))
def test_a_damaged_page_is_read_alike_or_refused_alike(
    seed: int, place: int, byte: int
) -> None:
    body = bytearray(page(records(random.Random(seed))))
    body[place % len(body)] = byte
    for damaged in (body, body[: place % len(body)]):
        found, expected = outcome(rows_in, damaged), outcome(one_by_one, damaged)
        assert found == expected


def outcome(read: Callable[[Body], object], body: Body) -> object:
    """Return what ``read`` returns, or the text of its error."""
    try:
        return read(body)
    except SourceUnavailableError as error:
        return str(error)


@pytest.mark.parametrize(
    "body",
    [
        page([record(1, b"x", EncryptionType="KMS")]),
        page([record(1, b"x"), record(2, b"y", Data=None)]),
        page([record(1, b"x"), {"SequenceNumber": "2", "Data": b"y"}]),
        page([record(1, b"x", ApproximateArrivalTimestamp=1732531200.789)]),
        page([record(1, b"x", ApproximateArrivalTimestamp=Milliseconds(-1))]),
        page([record(1, b"x", ApproximateArrivalTimestamp=Milliseconds(2**63))]),
        page([record(1, b"x", SequenceNumber="x")]),
        page([record(1, b"x"), 5]),
        page([]),
        page([record(1, b"x")]).replace(
            b"NextShardIterator", b"Records\x78\x09AAAAAAA"
        ),
        encode({"Records": 5}),
        encode([]),
        b"\xa1" + encode("Records") + b"\x9b" + b"\xff" * 8 + encode(record(1, b"x")),
        b"\xbb" + b"\xff" * 8 + encode("Records") + b"\x81" + encode(record(1, b"x")),
        b"\xa1" + encode("x") + b"\x81" * 5000,
        b"\xa1" + encode("Records") + b"\x81\xbf\xff",
        b"\xa1" + encode("Records") + b"\x81\xa1\x7f\x61",
        b"\xa1" + encode("Records") + b"\x81\xa1\x64Data\x5b" + b"\xff" * 8,
    ],
)
def test_an_unusual_page_is_read_record_by_record(body: bytes) -> None:
    assert outcome(rows_in, body) == outcome(one_by_one, body)


def test_records_that_come_twice_are_refused() -> None:
    records = encode("Records") + encode([record(1, b"a")])
    with pytest.raises(SourceUnavailableError, match="a name that comes twice"):
        rows_in(b"\xa2" + records * 2)


def test_aggregates_are_opened_unless_asked_for_raw() -> None:
    packed = aggregate([Entry(b"a", "k"), Entry(b"b", "l", "7")])
    body = page([record(1, b"\xf3\x89"), record(2, packed)])
    assert [row["data"] for row in rows_in(body)] == [b"\xf3\x89", b"a", b"b"]
    assert [row["data"] for row in rows_in(body, deaggregate=False)][1] == packed


def test_without_the_compiled_decoder_a_page_in_cbor_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire_records, "compiled", None)
    with pytest.raises(SourceUnavailableError, match="isn't a page of records"):
        rows_in(page([record(1, b"x")]))


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


def test_a_page_that_looks_like_an_end_has_its_records_as_objects() -> None:
    body = page([record(1, b"a"), record(2, b"b")], NextShardIterator=None)
    found = decode_page(body)
    rows = rows_of(found, deaggregate=True)
    assert [each.data for each in found.records] == [b"a", b"b"]
    assert len(rows) == 2


def test_only_requested_columns_are_built() -> None:
    columns = Columns(schema("data", "shard_id"))
    rows = rows_of(decode_page(page([record(1, b"a")])), deaggregate=True)
    batch = rows.batch(SHARD, columns, Slice(0, 1))
    assert batch.to_pylist() == [{"data": b"a", "shard_id": "shard-7"}]


def test_a_schema_of_unknown_columns_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'color'.*sequence_number"):
        Columns(StructType().add("color", StringType()))
    with pytest.raises(ConfigurationError, match=r"'data'.*bigint.*binary"):
        Columns(StructType().add("data", LongType()))
    with pytest.raises(ConfigurationError, match="the schema has no columns"):
        Columns(StructType())
    with pytest.raises(ConfigurationError, match="names are lower-case: data"):
        Columns(StructType().add("Data", BinaryType()))


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


def test_a_range_whose_last_record_was_read_before_is_over() -> None:
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
