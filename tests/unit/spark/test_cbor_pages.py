"""Test that pages in CBOR give the same rows in columns as record by record."""

from __future__ import annotations

import random
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.aws.kinesis import KinesisSource
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey, Stream
from kinesumer.runtime.clock import SystemClock
from kinesumer.spark.columnar import cbor_layout
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.columnar.cbor_layout import find_compiled_splitter
from kinesumer.spark.columnar.rows import RecordRows, Slice, TableRows, parse
from kinesumer.spark.offsets.model import BEGINNING, After
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.spark.reading.range_fetcher import RangeFetcher, ReadContext
from kinesumer.spark.runtime.process_cache import IteratorCache, PaceCache
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.put_records import Entry, aggregate
from kinesumer.wire.records import decode_page
from tests.support.spark_reading import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.ports import Reservation
    from kinesumer.wire.records import Body

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
ALL = Columns(schema(*COLUMNS))
compiled = find_compiled_splitter()
needs_native = pytest.mark.skipif(
    compiled is None, reason="kinesumer-native isn't installed: pip install ./native"
)


def record(number: int, data: bytes, **more: object) -> dict[str, object]:
    return {
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": Milliseconds(1_732_531_200_789 + number % 1000),
        "Data": data,
        "PartitionKey": f"user-{number % 7}",
        **more,
    }


def page(records: list[Any], **more: object) -> bytes:
    rest = {"NextShardIterator": "AAA=", "MillisBehindLatest": 7, **more}
    return encode({"Records": records, **rest})


def rows_of(body: Body, *, deaggregate: bool = True) -> list[dict[str, object]]:
    _, rows = parse(body, ALL.names, deaggregate=deaggregate)
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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("frame", [bytes, indefinite])
def test_any_layout_reads_alike_in_columns(
    seed: int, frame: Callable[[bytes], bytes]
) -> None:
    body = frame(page(records(random.Random(seed))))
    found, rows = parse(body, ALL.names, deaggregate=True)
    assert found._replace(records=[]) == decode_page(body)._replace(records=[])
    assert isinstance(rows, RecordRows if compiled is None else TableRows)
    assert listed(rows) == one_by_one(body)
    payload = sum(
        len(each.data) + len((each.partition_key or "").encode())
        for each in decode_page(body).records
    )
    assert abs(rows.payload - payload) <= len(rows)
    assert rows.arrived(0) == decode_page(body).records[0].approximate_arrival_timestamp
    assert rows.number(0) == decode_page(body).records[0].sequence_number


@pytest.mark.parametrize("frame", [bytes, indefinite])
def test_records_without_keys_read_alike_in_columns(
    frame: Callable[[bytes], bytes],
) -> None:
    found = [record(number, b"data") for number in range(30)]
    for each in found:
        del each["PartitionKey"]
    body = frame(page(found))
    _, rows = parse(body, ALL.names, deaggregate=True)
    assert isinstance(rows, RecordRows if compiled is None else TableRows)
    assert {row["partition_key"] for row in listed(rows)} == {None}
    assert listed(rows) == one_by_one(body)
    assert rows.payload == 30 * len(b"data")
    for place in (0, 7):  # a producer may give keys, and another none
        mixed = [dict(each) for each in found]
        mixed[place]["PartitionKey"] = "key"
        assert rows_of(frame(page(mixed))) == one_by_one(page(mixed))


@given(seed=st.integers(0, 50), place=st.integers(0), byte=st.integers(0, 255))
def test_a_damaged_page_is_read_alike_or_refused_alike(
    seed: int, place: int, byte: int
) -> None:
    body = bytearray(page(records(random.Random(seed))))
    body[place % len(body)] = byte
    for damaged in (body, body[: place % len(body)]):
        found, expected = outcome(rows_of, damaged), outcome(one_by_one, damaged)
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
    assert outcome(rows_of, body) == outcome(one_by_one, body)


def test_records_that_come_twice_are_those_that_come_last() -> None:
    twice = encode("Records") + encode([record(1, b"a")])
    for last in ([], [record(2, b"b")]):
        body = b"\xa2" + twice + encode("Records") + encode(last)
        assert rows_of(body) == one_by_one(body)
        assert len(rows_of(body)) == len(last)


def test_aggregates_are_opened_unless_asked_for_raw() -> None:
    packed = aggregate([Entry(b"a", "k"), Entry(b"b", "l", "7")])
    body = page([record(1, b"\xf3\x89"), record(2, packed)])
    assert [row["data"] for row in rows_of(body)] == [b"\xf3\x89", b"a", b"b"]
    assert [row["data"] for row in rows_of(body, deaggregate=False)][1] == packed


@needs_native
def test_what_is_not_cbor_is_refused_by_the_compiled_splitter() -> None:
    assert compiled is not None
    for body in (b"", b"\xa0", b"{}", page([])):
        with pytest.raises(ValueError, match=r"\w"):
            compiled(body, b"")
    with pytest.raises(TypeError):
        compiled("text", b"")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        compiled(b"", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="two arguments"):
        compiled(b"")  # type: ignore[call-arg]


def test_the_compiled_splitter_is_used_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("kinesumer_native")
    monkeypatch.setitem(sys.modules, "kinesumer_native", module)
    assert find_compiled_splitter() is None  # an older version
    module.to_columns = split = object()  # type: ignore[attr-defined]
    assert find_compiled_splitter() is split
    monkeypatch.setitem(sys.modules, "kinesumer_native", None)
    assert find_compiled_splitter() is None


def test_without_the_compiled_splitter_records_are_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = page([record(1, b"x")])
    monkeypatch.setattr(cbor_layout, "to_columns", None)
    assert isinstance(parse(body, ALL.names, deaggregate=True)[1], RecordRows)
    assert rows_of(body) == one_by_one(body)


class AskedSource(KinesisSource):
    """Notes in which formats pages are asked for. A page has one record of 5 KB."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def get_iterator(self, shard_id: str, after: object) -> str:
        return "iterator"

    async def read(
        self,
        iterator: str,
        limit: int,
        decode: Callable[[bytearray], Any],
        reservation: Reservation | None = None,
    ) -> Any:
        assert reservation is not None
        assert reservation.covers(10**9)
        self.asked.append(reservation.asks_cbor)
        number = len(self.asked)
        return decode(bytearray(page([record(number, bytes(90_000))])))


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ("json", [False] * 3),
        ("cbor", [True] * 3),
        ("auto", [False, True, True]),  # after a page of large records
    ],
)
async def test_pages_are_asked_for_in_the_format_of_the_option(
    setting: Any, asked: list[bool]
) -> None:
    source = AskedSource()
    options = ReadOptions(
        streams=(Stream("orders"),), wire_format=setting, min_fetch_period=0.0
    )
    context = ReadContext(
        SystemClock(), random.Random(1), IteratorCache(), PaceCache(), options, ALL
    )
    range_ = ShardRange(*SHARD, BEGINNING, After(Position("3"), 0.0), 86400.0)

    async def open_source(_: Stream) -> AskedSource:
        return source

    for _ in range(2):  # the choice lasts from one batch to the next
        source.asked.clear()
        fetcher = RangeFetcher(context, range_, Stream("orders"), open_source)
        while not fetcher.over:
            await fetcher.turn()
        assert source.asked == asked
        if setting == "auto":
            asked = [True] * 3
