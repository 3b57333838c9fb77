"""Test that pages in CBOR mean the same as in JSON, however they are written."""

from __future__ import annotations

import json
from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Page, Record
from kinesumer.wire import records as wire_records
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.records import decode_page, payload_bytes
from tests.support.cbor import needs_compiled, page, record

NAMES = ("SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey")
ORDERS = (
    NAMES,
    tuple(sorted(NAMES)),
    ("PartitionKey", "Data", "SequenceNumber", "ApproximateArrivalTimestamp"),
    ("Data", "ApproximateArrivalTimestamp", "PartitionKey", "SequenceNumber"),
)
# Of a stream that distributes records by AUTO.
KEYLESS = tuple(tuple(name for name in order if name != NAMES[3]) for order in ORDERS)
Fields = dict[str, Any]
TAIL = {"NextShardIterator": "A" * 200, "MillisBehindLatest": 7}


def indefinite(records: list[Fields]) -> bytes:
    """Return a page whose arrays and maps end with a break."""
    parts = [b"\xbf", encode("Records"), b"\x9f"]
    for fields in records:
        parts += [b"\xbf", *(encode(k) + encode(v) for k, v in fields.items()), b"\xff"]
    parts += [b"\xff", *(encode(k) + encode(v) for k, v in TAIL.items()), b"\xff"]
    return b"".join(parts)


def written(records: list[Fields], is_indefinite: bool) -> bytes:
    return indefinite(records) if is_indefinite else page(records, **TAIL)


def as_json(records: list[Fields]) -> bytes:
    plain = [
        {
            name: b64encode(value).decode()
            if isinstance(value, bytes)
            else value / 1000
            if isinstance(value, Milliseconds)
            else value
            for name, value in fields.items()
        }
        for fields in records
    ]
    return json.dumps({"Records": plain, **TAIL}).encode()


LATE = {"ApproximateArrivalTimestamp": Milliseconds(2**63)}


def map_of(*pairs: tuple[str, object]) -> bytes:
    """Return a map whose keys may repeat."""
    assert len(pairs) < 24
    encoded = b"".join(encode(name) + encode(value) for name, value in pairs)
    return bytes((0xA0 + len(pairs),)) + encoded


NO_RECORDS = "Records", list[object]()


def page_of_record(one: bytes, number: int = 1) -> bytes:
    """Return a page with copies of one record."""
    return b"\xa1" + encode("Records") + bytes((0x80 + number,)) + one * number


def without_size(found: Page) -> Page:
    return found._replace(wire_bytes=0, is_cbor=False)


data = st.binary(max_size=30) | st.integers(0, 70_000).map(bytes)
keys = st.text(min_size=1, max_size=100)
changes = st.sampled_from(
    [
        {},
        {},
        {"EncryptionType": "KMS"},
        {"EncryptionType": "NONE"},
        {"SequenceNumber": "1"},
        {"Added": {"by": ["AWS", 7, None], "later": True}},
    ]
)
records = st.lists(
    st.tuples(st.integers(0, 10**6), data, keys, changes, st.booleans()), max_size=8
)


@needs_compiled
@given(records, st.sampled_from(ORDERS), st.booleans())
def test_a_page_in_cbor_means_the_same_as_in_json(
    drawn: list[tuple[int, bytes, str, Fields, bool]],
    order: tuple[str, ...],
    is_indefinite: bool,
) -> None:
    rows = []
    for number, payload, key, change, is_keyless in drawn:
        row = record(number, payload, PartitionKey=key)
        row = {name: row[name] for name in order} | change
        if is_keyless:
            del row["PartitionKey"]
        rows.append(row)
    body = written(rows, is_indefinite)
    assert without_size(decode_page(body)) == without_size(decode_page(as_json(rows)))


@needs_compiled
@given(
    st.sampled_from(ORDERS + KEYLESS),
    st.booleans(),
    st.integers(0, 10_000),
    st.integers(0, 255),
)
def test_a_spoiled_page_is_a_page_or_is_refused(
    order: tuple[str, ...], is_indefinite: bool, place: int, byte: int
) -> None:
    rows = [record(n, b"data") for n in range(4)]
    rows = [{name: row[name] for name in order} for row in rows]
    body = bytearray(written(rows, is_indefinite))
    body[place % len(body)] = byte
    for spoiled in (body, body[: place % len(body)]):
        try:
            found = decode_page(spoiled)
        except SourceUnavailableError:
            continue
        assert all(type(each.data) is bytes for each in found.records)


SPOILED_TEXT = page([record(8, b"x", PartitionKey="?", SequenceNumber="?")])


@needs_compiled
@pytest.mark.parametrize(
    "body",
    [
        b"\xa0",
        page([record(1, b"x")])[:-1],
        page([record(1, b"x")]) + b"\x00",
        page([record(n, b"x" * 30) for n in range(5)])[:300],
        page([record(1, b"x") | {"Data": "eA=="}]),
        page([record(1, b"x") | {"Data": None}]),
        page([record(1, b"x") | {"PartitionKey": None}]),
        page([record(1, b"x") | {"SequenceNumber": 5}]),
        page([record(1, b"x") | {"SequenceNumber": "x"}]),
        page([record(1, b"x") | {"ApproximateArrivalTimestamp": "soon"}]),
        page([record(1, b"x") | {"ApproximateArrivalTimestamp": 1.5e9}]),
        page([record(1, b"x"), record(2, b"x") | {"PartitionKey": b"x"}]),
        page([record(1, b"x"), record(2, b"x") | LATE]),
        page([{"SequenceNumber": "1", "Data": b"x"}]),
        page([], MillisBehindLatest="0"),
        map_of(("MillisBehindLatest", 0), ("MillisBehindLatest", 0), NO_RECORDS),
        map_of(NO_RECORDS, NO_RECORDS),
        page_of_record(map_of(("Data", "x"), *record(1, b"x").items())),
        page_of_record(map_of(*record(1, b"first").items(), ("Data", b"second"))),
        page_of_record(b"\xd7" + encode(record(1, b"x"))),
        SPOILED_TEXT.replace(b"?", b"\xff"),
        page([], ChildShards=[{}]),
        encode({"Records": 5}),
        encode({"Records": {}}),
        encode({"Records": [5]}),
        b"\xa1" + encode("Records") + b"\x9b" + b"\xff" * 8,
        b"\xa1" + encode("Records") + b"\x9b" + b"\xff" * 8 + encode(record(1, b"")),
        b"\xa1" + encode("Records"),
        b"\xa1" + encode("x") + b"\x81" * 5000,
        b"\xb8",
    ],
)
def test_an_unusual_page_is_refused(body: bytes) -> None:
    expected = f"GetRecords of {len(body):,} bytes isn't a page"
    with pytest.raises(SourceUnavailableError, match=expected):
        decode_page(body)


@needs_compiled
@pytest.mark.parametrize("size", [0, 100, 1000, 50_000])
def test_the_size_of_the_data_is_estimated(size: int) -> None:
    rows = [record(10**55 + n, bytes(size)) for n in range(50)]
    sent = 50 * (size + len("user-1"))
    for body in (page(rows, **TAIL), as_json(rows)):
        assert sent <= payload_bytes(decode_page(body)) <= 1.05 * sent + 2000


def test_a_page_in_cbor_has_the_records_and_fields_of_the_compiled_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body, found = encode({}), [Record("12", b"x")]
    decoder = SimpleNamespace(
        read_page=lambda *_: (bytes(32), False, {"MillisBehindLatest": 7}),
        iterate=lambda *_: iter(found),
    )
    monkeypatch.setattr(wire_records, "compiled", decoder)
    expected = Page(found, None, 7, (), len(body), is_cbor=True)
    assert decode_page(body) == expected
    assert payload_bytes(expected) == 0


def test_a_page_in_cbor_is_not_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_records, "compiled", None)
    with pytest.raises(SourceUnavailableError, match="isn't a page of records"):
        decode_page(page([record(1, b"x")]))
