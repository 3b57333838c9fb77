"""Answers of Kinesis, or of what stands in its place: read, or refused as no answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.cli.record_output import as_json
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Fence, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.columnar.rows import RecordRows, Slice, parse
from kinesumer.spark.options.table import COLUMNS
from kinesumer.wire.aggregation import open_records
from kinesumer.wire.put_records import decode_results
from kinesumer.wire.records import decode_iterator, decode_page
from tests.system.hostile.pages import NUMBER, bodies, scraps
from tests.system.spark.reading_bench import schema

if TYPE_CHECKING:
    from kinesumer.spark.columnar.rows import Rows

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
SOURCE = Source(Fence(SHARD, 1), 0, HASH_KEYS // 2)
ALL = Columns(schema(*COLUMNS))


def body(record: str, rest: str = "") -> bytes:
    """Return an answer of one record, as it is written."""
    return f'{{"Records":[{record}],"MillisBehindLatest":0{rest}}}'.encode()


def one(**changes: str) -> str:
    """Return a record with other JSON for some of its values."""
    fields = {
        "ApproximateArrivalTimestamp": "1.5",
        "Data": '"aGVsbG8="',
        "PartitionKey": '"k"',
        "SequenceNumber": f'"{NUMBER}"',
        **changes,
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


CORPUS = [
    b"",
    b"null",
    b"[" * 100_000,
    b'{"Records":' + b"[" * 100_000,
    body(""),
    body(one(), ',"ChildShards":null'),
    body(one(ApproximateArrivalTimestamp="1e300")),
    body(one(ApproximateArrivalTimestamp="1e18")),
    body(one(ApproximateArrivalTimestamp="-1e18")),
    body(one(ApproximateArrivalTimestamp="9223372036854.775807")),
    body(one(ApproximateArrivalTimestamp="1e999")),
    body(one(ApproximateArrivalTimestamp="1" * 5000)),
    body(one(ApproximateArrivalTimestamp='"1.5"')),
    body(one(ApproximateArrivalTimestamp="1.5.5")),
    body(one(ApproximateArrivalTimestamp="nan")),
    body(one(ApproximateArrivalTimestamp="null")),
    body(one(SequenceNumber='""')),
    body(one(SequenceNumber='"twelve"')),
    body(one(SequenceNumber='"-1"')),
    body(one(SequenceNumber="5")),
    body(one(SequenceNumber='"' + "9" * 5000 + '"')),
    body(one(Data='"aGVsbG8"')),
    body(one(Data='"a==="')),
    body(one(Data='"===="')),
    body(one(Data='"aG\\u0056sbG8="')),
    body(one(PartitionKey='"\\ud800"')),
    body(one(PartitionKey='"' + "k" * 5000 + '"')),
    body(one() + "," + one(Data='"a"')),
    body(one() + "," + one(PartitionKey="null")),
    body(one() + ",5"),
    body(one() + one()),
    body(one(Records="[]")),
    body(one()) + b"x",
    body(one())[:-1],
    body(one()).replace(b"Records", b"records"),
    body(one(), ',"Records":[]'),
    body(one(), ',"NextShardIterator":5'),
    body(one(), ',"MillisBehindLatest":1e30'),
    body(one(), ',"MillisBehindLatest":-1'),
    body(one()).replace(b"hello", b"\xff"),
    body(one(Data='"\xff\xff"')),
]


def corpus(test: Any) -> Any:
    """Try each body that was found to matter, or may."""
    for found in CORPUS:
        test = example(found)(test)
    return test


@corpus
@given(bodies() | st.binary(max_size=50))
def test_whatever_is_answered_is_a_page_or_refused(answer: bytes) -> None:
    try:
        page = decode_page(answer)
    except SourceUnavailableError as error:
        assert len(str(error)) < 1000
        return
    opened = open_records(page.records, SOURCE)
    for record in opened.records:
        as_json(record)
        assert record.position <= record.position
        assert record.position.sequence_number.isdigit()
    for child in page.children:
        assert 0 <= child.first_hash <= child.last_hash < HASH_KEYS


@corpus
@given(bodies())
def test_sparks_columns_say_what_the_records_say(answer: bytes) -> None:
    expected = outcome(lambda: one_by_one(answer))
    found = outcome(lambda: in_columns(answer))
    # What is no JSON to begin with may be read in spite of that.
    assert found == expected or (expected == "refused" and not is_json(answer))


def is_json(answer: bytes) -> bool:
    try:
        json.loads(answer, parse_constant=int)
    except (ValueError, RecursionError):
        return False
    return True


def one_by_one(answer: bytes) -> Any:
    page = decode_page(answer)
    rows = RecordRows(page.records, deaggregate=True)
    return page._replace(records=[]), said(rows)


def in_columns(answer: bytes) -> Any:
    page, rows = parse(answer, ALL.names, deaggregate=True)
    return page._replace(records=[]), said(rows)


def said(rows: Rows) -> list[dict[str, Any]]:
    """Return all that can be asked of rows."""
    places = range(len(rows))
    [(rows.number(place), rows.arrived(place)) for place in places]
    assert rows.payload >= 0
    found = rows.batch(SHARD, ALL, Slice(0, len(rows))).to_pylist()
    return [dict(row) for row in found]


def outcome(work: Any) -> Any:
    """Return a result, or that it was refused."""
    try:
        return work()
    except SourceUnavailableError:
        return "refused"


@example(b'{"ShardIterator":null}')
@example(b"[" * 100_000)
@example(b'"\xff"')
@given(scraps.map(repr).map(str.encode) | st.binary(max_size=50))
def test_other_answers_are_read_or_refused(answer: bytes) -> None:
    outcome(lambda: decode_iterator(answer))
    outcome(lambda: decode_results(answer, 1))
