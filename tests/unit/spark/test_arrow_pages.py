"""Test that reading pages as columns gives the same rows as reading by record."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys

import pyarrow as pa
import pytest

from kinesumer.errors import ConfigurationError, SourceUnavailableError
from kinesumer.model.streams import ShardKey
from kinesumer.spark.columnar.arrow import Columns, decode
from kinesumer.spark.columnar.rows import RecordRows, Slice, TableRows, parse
from kinesumer.spark.options.table import COLUMNS
from kinesumer.wire.put_records import Entry, aggregate
from kinesumer.wire.records import decode_page
from tests.support.spark_reading import schema

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
ALL = Columns(schema(*COLUMNS))


def record(number: int, data: bytes, **more: object) -> dict[str, object]:
    return {
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": 1732531200.789 + number % 1000 / 1000,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": f"user-{number % 7}",
        **more,
    }


def written(records: list[dict[str, object]], **more: object) -> bytes:
    answer = {"Records": records, "NextShardIterator": "AAA=", **more}
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()


def rows_of(body: bytes, *, deaggregate: bool = True) -> list[dict[str, object]]:
    _, rows = parse(body, ALL.names, deaggregate=deaggregate)
    batch = rows.batch(SHARD, ALL, Slice(0, len(rows)))
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def one_by_one(body: bytes) -> list[dict[str, object]]:
    rows = RecordRows(decode_page(body).records, deaggregate=True)
    batch = rows.batch(SHARD, ALL, Slice(0, len(rows)))
    found: list[dict[str, object]] = batch.to_pylist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_any_layout_reads_alike_in_columns(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice([1, 1, 2, 3, 30])
    records = [
        record(
            10 ** chance.choice([5, 55]) + place,
            chance.randbytes(chance.choice([0, 1, 2, 3, 4, 5, 100])),
            PartitionKey=chance.choice(["", "k", "é{},:[]", ""]),
        )
        for place in range(count)
    ]
    if chance.random() < 0.3:
        records = [{**each, "EncryptionType": "KMS"} for each in records]
    names = chance.sample([*records[0]], len(records[0]))
    records = [{name: each[name] for name in names} for each in records]
    children = [{"ShardId": "s", "ParentShards": ["p"], "HashKeyRange": RANGE}]
    top: list[tuple[str, object]] = [
        ("Records", records),
        ("NextShardIterator", "AAA="),
        ("MillisBehindLatest", 7),
        ("ChildShards", children),
    ]
    chance.shuffle(top)
    separators = chance.choice([(",", ":"), (", ", ": ")])
    body = json.dumps(dict(top), separators=separators, ensure_ascii=False).encode()
    page, rows = parse(body, ALL.names, deaggregate=True)
    assert isinstance(rows, TableRows)
    assert page == decode_page(body)._replace(records=[])
    assert rows_of(body) == one_by_one(body)
    assert [rows.number(n) for n in range(count)] == [
        each["SequenceNumber"] for each in records
    ]


def test_a_page_becomes_columns_without_pandas() -> None:
    """Importing pandas takes more CPU than the rest of a small query's task."""
    pytest.importorskip("pandas")
    program = (
        "import sys; from tests.unit.spark.test_arrow_pages import *;"
        "body = written([record(number, b'x') for number in range(9)]);"
        "_, rows = parse(body, ALL.names, deaggregate=True);"
        "assert rows.batch(SHARD, ALL, Slice(0, 9)).num_rows == 9;"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.stdout == b"False\n", done.stderr.decode()


RANGE = {"StartingHashKey": "0", "EndingHashKey": "1"}


def test_every_column_holds_its_value() -> None:
    [row] = rows_of(written([record(12, b"hello")]))
    assert row.pop("arrived_at").timestamp() == pytest.approx(1732531200.801)  # type: ignore[attr-defined]
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


@pytest.mark.parametrize(
    "records",
    [
        [record(1, b"a"), {**record(2, b"b"), "EncryptionType": "NONE"}],
        [record(1, b"a"), dict(reversed(record(2, b"b").items()))],
        [record(1, b"a"), record(2, b"b", PartitionKey='say "hi"\n')],
        [record(1, b"a", PartitionKey=None), record(2, b"b")],
        [{"SequenceNumber": "1", "Data": "YQ=="}, record(2, b"b")],
        [record(1, b"a"), record(2, b"b", PartitionKey="SequenceNumber")],
        [record(1, b"a"), record(2, b"b", ApproximateArrivalTimestamp=None)],
    ],
    ids=["field", "order", "escapes", "null", "missing", "value", "no time"],
)
def test_records_that_differ_in_more_than_values_are_read_one_by_one(
    records: list[dict[str, object]],
) -> None:
    body = written(records)
    assert rows_of(body) == one_by_one(body)


def test_records_that_all_lack_a_key_are_read_in_columns() -> None:
    records = [record(n, b"x") for n in range(3)]
    for each in records:
        del each["PartitionKey"], each["ApproximateArrivalTimestamp"]
    body = written(records)
    assert isinstance(parse(body, ALL.names, deaggregate=True)[1], TableRows)
    assert rows_of(body) == one_by_one(body)
    assert parse(body, ALL.names, deaggregate=True)[1].arrived(0) is None


def test_aggregates_are_opened_unless_asked_for_raw() -> None:
    packed = aggregate([Entry(b"%d" % n, "k") for n in range(3)])
    body = written([record(1, b"a"), record(2, packed)])
    assert [row["data"] for row in rows_of(body)] == [b"a", b"0", b"1", b"2"]
    assert [row["data"] for row in rows_of(body, deaggregate=False)] == [b"a", packed]


def test_a_page_that_looks_like_an_end_has_its_records_as_objects() -> None:
    body = written([record(1, b"a"), record(2, b"b")], NextShardIterator=None)
    page, rows = parse(body, ALL.names, deaggregate=True)
    assert [each.data for each in page.records] == [b"a", b"b"]
    assert len(rows) == 2


def test_an_empty_page_has_no_rows() -> None:
    page, rows = parse(written([], MillisBehindLatest=9), ALL.names, deaggregate=True)
    assert (page.millis_behind, len(rows)) == (9, 0)


@pytest.mark.parametrize("text", ["a", "ab=c", "=abc", "ab==YWI=", "!!!!"])
def test_invalid_base64_is_an_error(text: str) -> None:
    good, bad = record(1, b"abc"), {**record(2, b""), "Data": text}
    for records in ([good, bad], [bad, good], [good, bad, good]):
        with pytest.raises(SourceUnavailableError):
            parse(written(records), ALL.names, deaggregate=True)


def test_a_truncated_response_is_an_error() -> None:
    body = written([record(n, b"abc%d" % n) for n in range(4)])
    for size in range(0, len(body), 3):
        with pytest.raises(SourceUnavailableError):
            parse(body[:size], ALL.names, deaggregate=True)


def test_base64_of_any_lengths_is_decoded_at_once() -> None:
    chance = random.Random(5)
    for _ in range(200):
        size = chance.choice([0, 1, 2, 9])
        values = [chance.randbytes(chance.randrange(9)) for _ in range(size)]
        texts = pa.array([base64.b64encode(value) for value in values], pa.binary())
        assert decode(texts).to_pylist() == values


def test_only_requested_columns_are_built() -> None:
    columns = Columns(schema("data", "shard_id"))
    _, rows = parse(written([record(1, b"a")]), columns.names, deaggregate=True)
    batch = rows.batch(SHARD, columns, Slice(0, 1))
    assert batch.to_pylist() == [{"data": b"a", "shard_id": "shard-7"}]


def test_a_schema_of_unknown_columns_is_refused() -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    with pytest.raises(ConfigurationError, match=r"'color'.*sequence_number"):
        Columns(StructType().add("color", StringType()))
    with pytest.raises(ConfigurationError, match=r"'data'.*bigint.*binary"):
        Columns(StructType().add("data", LongType()))
