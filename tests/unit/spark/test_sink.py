"""Test the sink against the embedded AWS: rows become records, and none is lost."""

from __future__ import annotations

import json
import logging
import pickle
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kinesumer import AccessDeniedError, ConfigurationError, StreamMissingError
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start, Stream
from kinesumer.producer.put_stream import PutCounts
from kinesumer.spark.options.parser import connection_from, parse_write
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.process import run_on_loop
from kinesumer.spark.process_cache import close_sources, sources
from kinesumer.spark.sink import (
    BatchWriter,
    RejectedRowError,
    StreamWriter,
    WriteResult,
    parts,
)
from kinesumer.testing import EmbeddedAws
from tests.support.aggregates import open_records
from tests.support.spark_reading import TYPES, schema

Row = tuple[bytes | None, str | None, str | None]
SCHEMA = schema("data", "partition_key", "explicit_hash_key")


@pytest.fixture(autouse=True)
def _no_connections_are_left() -> Iterator[None]:
    yield
    run_on_loop(close_sources())


ARROW = pa.schema(
    {
        "data": pa.binary(),
        "partition_key": pa.string(),
        "explicit_hash_key": pa.string(),
    }
)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.record_batch(list(zip(*rows, strict=True)), schema=ARROW)


def put(
    rows: Sequence[Row], stream: str = "orders", part: int = 10_000, **options: str
) -> WriteResult:
    given = {"streams": stream, **options}
    made = BatchWriter(parse_write(given, connection_from(given)), SCHEMA)
    writer = pickle.loads(pickle.dumps(made))
    batches = [batch(rows[at : at + part]) for at in range(0, len(rows), part)]
    written = writer.write(iter(batches))
    assert isinstance(written, WriteResult)
    return pickle.loads(pickle.dumps(written))  # type: ignore[no-any-return]


async def _read(stream: str) -> dict[str, list[Record]]:
    source = await sources(connection_from({})).open(Stream(stream))
    found: dict[str, list[Record]] = {}
    iterator: str | None
    for shard in await source.list_shards():
        iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
        fence = Fence(ShardKey("arn/x", shard.shard_id), 1)
        of_shard = Source(fence, shard.first_hash, shard.last_hash)
        found[shard.shard_id] = []
        while iterator is not None:
            page = await source.get_records(iterator, 10_000)
            iterator = page.next_iterator if page.records else None
            opened = open_records(page.records, of_shard)
            assert opened.outside == 0
            found[shard.shard_id] += opened.records
    return found


def read(stream: str = "orders") -> dict[str, list[Record]]:
    return run_on_loop(_read(stream))


def rows_of(records: dict[str, list[Record]]) -> list[tuple[bytes, str]]:
    return sorted(
        (r.data, r.partition_key or "") for part in records.values() for r in part
    )


def numbered(count: int, keys: int = 50) -> list[Row]:
    return [(f"{n:06}".encode(), f"key-{n % keys}", None) for n in range(count)]


def test_every_row_is_put_where_its_keys_say(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=4)
    last = str(HASH_KEYS - 1)
    written = put([*numbered(1200), (b"last", "key-0", last), (b"", "key-0", None)])
    assert written.counts.rows == written.counts.records == 1202
    assert written.counts.requests == 3
    found = read()
    assert len(rows_of(found)) == 1202
    assert b"last" in {record.data for record in found["shardId-000000000003"]}


@pytest.mark.parametrize("ordered", ["true", "false"])
@pytest.mark.parametrize("aggregate", ["true", "false"])
def test_a_full_stream_takes_every_row_in_the_end(
    kinesumer_aws: EmbeddedAws, ordered: str, aggregate: str
) -> None:
    rows = numbered(3000, keys=600)
    kinesumer_aws.create_stream("orders", shards=2)
    kinesumer_aws.fault("throttle", operation="PutRecords", count=2)
    kinesumer_aws.fault("drop", operation="PutRecords", count=1)
    written = put(rows, part=1000, ordered=ordered, aggregate=aggregate)
    assert written.counts.rows == 3000
    assert written.counts.retried > 0
    found = read()
    # One answer was lost, so the records of its request are in the stream twice.
    assert set(rows_of(found)) == {(data, key) for data, key, _ in rows}
    if ordered == "true":
        for records in found.values():
            seen: dict[str, bytes] = {}
            for record in records:
                key = record.partition_key or ""
                assert record.data >= seen.get(key, b"") or aggregate == "true"
                seen[key] = record.data
    if aggregate == "true":
        assert written.counts.records < 10


BAD_ROWS = [
    ((b"x", None, None), "partition_key is null"),
    ((None, "k-7", None), "data is null"),
    ((bytes(1 << 20), "k-7", None), "have 1,048,579 bytes, more than the 1,048,576"),
    ((b"x", "k-7", "-1"), "explicit_hash_key is '-1'"),
]


def test_a_bad_row_fails_the_batch_with_its_key(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders")
    for row, reason in BAD_ROWS:
        with pytest.raises(RejectedRowError) as caught:
            put([*numbered(1), row])
        assert reason in str(caught.value)
        assert f"partition key {row[1]!r} can't be put" in str(caught.value)


def test_rows_that_cant_be_put_go_to_a_file_if_asked(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders")
    directory = tmp_path / "dead" / "letters"
    bad = [row for row, _ in BAD_ROWS]
    for scheme in ("", "file://"):
        path = f"{scheme}{directory}"
        assert put(numbered(10), deadLetterPath=path).dead_letter_file is None
        assert scheme or not list(tmp_path.iterdir())
        written = put([*numbered(10), *bad], deadLetterPath=path)
        assert (written.counts.rows, written.dead_letters) == (10, len(bad))
        file = Path(str(written.dead_letter_file))
        assert file in directory.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line, (row, reason) in zip(lines, BAD_ROWS, strict=True):
        assert reason in line["reason"]
        data = None if line["data"] is None else b64decode(line["data"])
        assert (data, line["partition_key"], line["explicit_hash_key"]) == row


def test_the_stream_sets_the_maximum_record_size(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders")
    assert put(numbered(5)).counts.rows == 5  # the description is kept for a minute
    kinesumer_aws.change_stream("orders", max_record_kib=10_240)
    most = (10 << 20) - 1
    assert put([(bytes(most), "k", None), *numbered(5)]).counts.rows == 6
    with pytest.raises(RejectedRowError, match="10,485,761 bytes"):
        put([(bytes(most + 1), "k", None)])


def test_a_row_that_has_become_too_large_is_put_aside_alone(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.change_stream("orders", max_record_kib=2048)
    assert put(numbered(5)).counts.rows == 5
    kinesumer_aws.change_stream("orders", max_record_kib=1024)
    rows: list[Row] = [*numbered(10), (bytes(1 << 20), "large", None)]
    with pytest.raises(RejectedRowError, match="partition key 'large' can't be put"):
        put(rows)
    written = put(rows, deadLetterPath=str(tmp_path))
    assert (written.counts.rows, written.dead_letters) == (10, 1)
    line = json.loads(Path(str(written.dead_letter_file)).read_text())
    assert "more than the 1,048,576" in line["reason"]


# --- streams that distribute records by AUTO ------------------------------------------


def test_a_query_without_keys_needs_a_stream_with_auto(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("b")
    kinesumer_aws.create_stream("a", 3, mode="ON_DEMAND", distribution="AUTO")
    rows = pa.record_batch({"data": pa.array([b"x", b"y"], pa.binary())})
    writer(schema("data")).write(iter([rows]))
    assert rows_of(read("a")) == [(b"x", ""), (b"y", "")]
    with pytest.raises(ConfigurationError, match="column partition_key is missing"):
        BatchWriter(parse_write({"streams": "b"}, connection_from({})), schema("data"))
    kinesumer_aws.change_stream("a", distribution="USER_PARTITION_KEY")
    with pytest.raises(RejectedRowError, match="partition_key is null"):
        writer(schema("data")).write(iter([rows]))


def test_another_accounts_stream_is_written_by_role(kinesumer_aws: EmbeddedAws) -> None:
    account = "210987654321"
    arn = kinesumer_aws.create_stream("orders", account=account)
    role = kinesumer_aws.create_role("writer", account=account, external_id="xyz")
    for choice in ("true", "false"):
        written = put(
            numbered(10), arn, roleArn=role.arn, roleExternalId="xyz", aggregate=choice
        )
        assert written.counts.rows == 10


def test_a_denied_request_fails_the_batch(kinesumer_aws: EmbeddedAws) -> None:
    with pytest.raises(StreamMissingError, match="orders"):
        put(numbered(1))
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.deny("kinesis:PutRecords")
    with pytest.raises(AccessDeniedError, match="kinesis:PutRecords"):
        put(numbered(2000))


# --- columns --------------------------------------------------------------------------


def writer(columns: StructType) -> StreamWriter:
    return StreamWriter(parse_write({"streams": "a"}, connection_from({})), columns)


def test_a_streams_own_columns_are_accepted() -> None:
    writer(schema(*COLUMNS))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("partition_key string", "column data is missing"),
        ("data bigint, partition_key string", "column data is bigint"),
        (
            "data binary, partition_key bigint",
            "column partition_key is bigint, but must be string",
        ),
        ("data string, partition_key string, x bigint", "column x has no place"),
        ("Data string, partition_key string", "rename it to data"),
        (
            "data string, partition_key string, partitionKey string",
            "column partitionKey .* did you mean partition_key",
        ),
    ],
)
def test_an_error_names_the_invalid_column(columns: str, message: str) -> None:
    typed = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        typed = typed.add(name, TYPES[kind])
    with pytest.raises(ConfigurationError, match=message):
        writer(typed)


def test_data_may_be_text(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("a")
    text = "größer"
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        data = pa.array([text.encode() if kind == pa.large_binary() else text], kind)
        rows = pa.record_batch({"data": data, "partition_key": ["k"]})
        writer(SCHEMA).write(iter([rows]))
    assert rows_of(read("a")) == [(text.encode(), "k")] * 3


# --- what the driver says -------------------------------------------------------------


def test_the_counts_of_a_batch_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    messages = [
        WriteResult(PutCounts(10, 2, 500, 1, 3), 1, "/dead/part-0.jsonl"),
        None,
        WriteResult(PutCounts(5, 5, 100, 1, 0)),
    ]
    caplog.set_level(logging.INFO, "kinesumer")
    writer(SCHEMA).commit([*messages], 7)
    writer(SCHEMA).abort([*messages], 8)
    done, failed = caplog.messages
    assert done == (
        "a: batch 7: put 15 rows as 7 records (600 bytes) in 2 requests, 3 records "
        "again; 1 rows can't be put: /dead/part-0.jsonl"
    )
    assert failed.startswith("a: batch 8 failed; tasks that had finished put 15 rows")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "most"), [(1 << 20, 8), (10 << 20, 1), (0, 4500)])
def test_a_part_of_a_batch_holds_a_bounded_number_of_bytes(
    size: int, most: int
) -> None:
    count = 20 if size else 4500
    rows = batch([(bytes(size), "k", None)] * count)
    lengths = [len(part) for part in parts(rows)]
    assert sum(lengths) == count
    assert max(lengths) <= most
