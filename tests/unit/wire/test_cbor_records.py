"""Test that pages in CBOR mean the same as in JSON, however they are written."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Record
from kinesumer.wire import cbor_records
from kinesumer.wire import records as wire_records
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.records import (
    decode_page,
    find_compiled_decoder,
    payload_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.records import Page

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
compiled = find_compiled_decoder()


@pytest.fixture(params=["python", "compiled"], scope="module", autouse=True)
def decoder(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test with both decoders."""
    if request.param == "compiled" and compiled is None:
        pytest.skip("kinesumer-native isn't installed: pip install ./native")
    with pytest.MonkeyPatch.context() as patch:
        read = compiled if request.param == "compiled" else None
        patch.setattr(wire_records, "to_records", read)
        yield request.param


@pytest.fixture
def in_python(decoder: str) -> None:
    """Skip the test with the compiled decoder, which has no layouts."""
    if decoder == "compiled":
        pytest.skip("only the decoder in Python has layouts")


def fields(number: int, data: bytes, key: str = "user-1") -> Fields:
    return {
        "SequenceNumber": f"4966{number:052}",
        "ApproximateArrivalTimestamp": Milliseconds(1_732_000_000_000 + number),
        "Data": data,
        "PartitionKey": key,
    }


def page(
    records: list[Fields], *, is_indefinite: bool = False, **others: object
) -> bytes:
    """Return a page; if it is indefinite, its arrays and maps end with a break."""
    tail = {"NextShardIterator": "A" * 200, "MillisBehindLatest": 7, **others}
    if not is_indefinite:
        return encode({"Records": records, **tail})
    parts = [b"\xbf", encode("Records"), b"\x9f"]
    for record in records:
        parts += [b"\xbf", *(encode(k) + encode(v) for k, v in record.items()), b"\xff"]
    parts += [b"\xff", *(encode(k) + encode(v) for k, v in tail.items()), b"\xff"]
    return b"".join(parts)


def as_json(records: list[Fields], **others: object) -> bytes:
    tail = {"NextShardIterator": "A" * 200, "MillisBehindLatest": 7, **others}
    plain = [
        {
            name: b64encode(value).decode()
            if isinstance(value, bytes)
            else value / 1000
            if isinstance(value, Milliseconds)
            else value
            for name, value in record.items()
        }
        for record in records
    ]
    return json.dumps({"Records": plain, **tail}).encode()


LATE = {"ApproximateArrivalTimestamp": Milliseconds(2**63)}


def map_of(*pairs: tuple[str, object]) -> bytes:
    """Return a map whose keys may repeat."""
    assert len(pairs) < 24
    encoded = b"".join(encode(name) + encode(value) for name, value in pairs)
    return bytes((0xA0 + len(pairs),)) + encoded


NO_RECORDS = "Records", list[object]()


def page_of(record: bytes, number: int = 1) -> bytes:
    """Return a page with copies of one record."""
    return b"\xa1" + encode("Records") + bytes((0x80 + number,)) + record * number


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
        {"PartitionKey": None},
        {"ApproximateArrivalTimestamp": 1.5e9},
        {"SequenceNumber": "1"},
    ]
)
records = st.lists(
    st.tuples(
        st.integers(0, 10**6), data, keys, changes, st.sampled_from([None, *NAMES[2:]])
    ),
    max_size=8,
)


@given(records, st.sampled_from(ORDERS), st.booleans())
def test_a_page_in_cbor_means_the_same_as_in_json(
    drawn: list[tuple[int, bytes, str, Fields, str | None]],
    order: tuple[str, ...],
    is_indefinite: bool,
) -> None:
    rows = []
    for number, payload, key, change, missing in drawn:
        row = fields(number, payload, key)
        row = {name: row[name] for name in order} | change
        if missing == "PartitionKey":
            del row[missing]
        rows.append(row)
    body = page(rows, is_indefinite=is_indefinite)
    assert without_size(decode_page(body)) == without_size(decode_page(as_json(rows)))


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize("order", [*ORDERS, *KEYLESS])
@pytest.mark.parametrize("is_indefinite", [False, True])
def test_equal_records_are_not_read_item_by_item(
    order: tuple[str, ...], is_indefinite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts = []
    plain = cbor_records._layout

    def counted(body: bytes, begin: int) -> object:
        layouts.append(begin)
        return plain(body, begin)

    monkeypatch.setattr(cbor_records, "_layout", counted)
    sizes = [5, 23, 24, 100, 255, 256, 1000, 65_535]
    rows = [fields(n, bytes(size), "k" * (n + 1)) for n, size in enumerate(sizes * 10)]
    rows = [{name: row[name] for name in order} for row in rows]
    found = decode_page(page(rows, is_indefinite=is_indefinite))
    assert [record.data for record in found.records] == [row["Data"] for row in rows]
    keys = [record.partition_key for record in found.records]
    assert keys == [row.get("PartitionKey") for row in rows]
    assert len(layouts) == 1


@given(
    st.sampled_from(ORDERS + KEYLESS),
    st.booleans(),
    st.integers(0, 10_000),
    st.integers(0, 255),
)
def test_a_spoiled_page_is_read_as_if_item_by_item(
    order: tuple[str, ...], is_indefinite: bool, place: int, byte: int
) -> None:
    rows = [fields(n, b"data", f"key-{n}") for n in range(4)]
    body = bytearray(
        page(
            [{name: row[name] for name in order} for row in rows],
            is_indefinite=is_indefinite,
        )
    )
    body[place % len(body)] = byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cbor_records, "_layout", lambda *_: None)
        patch.setattr(wire_records, "to_records", None)
        slow = outcome(body)
    assert outcome(body) == slow


def outcome(body: bytearray) -> Page | None:
    """Return the page, or None if it is refused."""
    try:
        return decode_page(body)
    except SourceUnavailableError:
        return None


@pytest.mark.parametrize(
    "body",
    [
        b"\xa0",
        page([fields(1, b"x")])[:-1],
        page([fields(1, b"x")]) + b"\x00",
        page([fields(n, b"x" * 30) for n in range(5)])[:300],
        page([fields(1, b"x") | {"Data": "eA=="}]),
        page([fields(1, b"x") | {"Data": None}]),
        page([fields(1, b"x") | {"SequenceNumber": 5}]),
        page([fields(1, b"x") | {"SequenceNumber": "x"}]),
        page([fields(1, b"x") | {"ApproximateArrivalTimestamp": "soon"}]),
        page([fields(1, b"x"), fields(2, b"x") | {"PartitionKey": b"x"}]),
        page([fields(n, b"x") | LATE for n in range(3)]),
        page(
            [
                {name: row[name] for name in KEYLESS[0]}
                for row in (fields(1, b"x"), fields(2, b"x") | LATE)
            ]
        ),
        page([{name: fields(n, b"x")[name] for name in KEYLESS[0]} for n in range(3)])[
            :150
        ],
        page(
            [
                fields(1, b"x"),
                fields(2, b"x") | LATE,
            ]
        ),
        page([], MillisBehindLatest="0"),
        map_of(("MillisBehindLatest", "0"), ("MillisBehindLatest", 0), NO_RECORDS),
        page_of(map_of(("Data", "x"), *fields(1, b"x").items())),
        page_of(map_of(("SequenceNumber", 1), *fields(1, b"x").items()), number=2),
        page([fields(8, b"x", "?") | {"SequenceNumber": "?"}]).replace(b"?", b"\xff"),
        page([], ChildShards=[{}]),
        encode({"Records": 5}),
        encode({"Records": {}}),
        encode({"Records": [5]}),
        b"\xa1" + encode("Records") + b"\x9b" + b"\xff" * 8,
        b"\xa1" + encode("Records") + b"\x9b" + b"\xff" * 8 + encode(fields(1, b"")),
        b"\xa1" + encode("x") + b"\x81" * 5000,
        b"\xb8",
    ],
)
def test_an_invalid_page_is_refused(body: bytes) -> None:
    expected = f"GetRecords of {len(body):,} bytes isn't a page"
    with pytest.raises(SourceUnavailableError, match=expected):
        decode_page(body)


@pytest.mark.parametrize("number", [1, 3])
def test_of_a_field_that_comes_twice_the_last_counts_as_in_json(number: int) -> None:
    record = map_of(*fields(1, b"first").items(), ("Data", b"second"))
    found = decode_page(page_of(record, number))
    assert [r.data for r in found.records] == [b"second"] * number
    body = map_of(("MillisBehindLatest", 1), NO_RECORDS, ("MillisBehindLatest", 2))
    assert decode_page(body).millis_behind == 2


def test_a_field_that_comes_twice_at_first_and_once_then_is_read() -> None:
    rows = map_of(*fields(1, b"first").items(), ("Data", b"second"))
    rows += encode(fields(2, b"third"))
    body = b"\xa1" + encode("Records") + b"\x82" + rows
    assert [r.data for r in decode_page(body).records] == [b"second", b"third"]


def test_tags_that_have_no_meaning_are_ignored() -> None:
    record = encode(fields(1, b"x"))
    name = encode("SequenceNumber")
    for tagged in (b"\xd7" + record, record.replace(name, name + b"\xd7")):
        found = decode_page(page_of(tagged, 3))
        assert [r.data for r in found.records] == [b"x"] * 3


def test_a_text_of_unknown_length_is_read() -> None:
    number = b"\x7f\x61" + b"1" + b"\x61" + b"2" + b"\xff"
    rest = encode(fields(1, b"x") | {"SequenceNumber": ""})[1:]
    record = b"\xa4" + rest.replace(encode(""), number, 1)
    body = b"\xa1" + encode("Records") + b"\x82" + record * 2
    assert [r.sequence_number for r in decode_page(body).records] == ["12", "12"]


@pytest.mark.parametrize("size", [0, 100, 1000, 50_000])
def test_the_size_of_the_data_is_estimated(size: int) -> None:
    rows = [fields(n, bytes(size)) for n in range(50)]
    sent = 50 * (size + len("user-1"))
    for body in (page(rows), as_json(rows)):
        assert sent <= payload_bytes(decode_page(body)) <= 1.05 * sent + 2000


def test_the_compiled_decoder_is_used_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("kinesumer_native")
    monkeypatch.setitem(sys.modules, "kinesumer_native", module)
    assert find_compiled_decoder() is None  # an older version
    module.to_records = read = object()  # type: ignore[attr-defined]
    assert find_compiled_decoder() is read
    monkeypatch.setitem(sys.modules, "kinesumer_native", None)
    assert find_compiled_decoder() is None


def test_a_page_that_the_compiled_decoder_refuses_is_decoded_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = page([fields(1, b"x")])

    def refuse(body: bytes, type_: type) -> object:
        raise ValueError("an unusual field")

    monkeypatch.setattr(wire_records, "to_records", refuse)
    assert [record.data for record in decode_page(body).records] == [b"x"]
    with pytest.raises(SourceUnavailableError, match="the end is missing"):
        decode_page(body[:-1])


def test_the_compiled_decoder_leaves_the_other_fields_to_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = page([])
    begin = body.index(b"Records") + len(b"Records")
    found = [Record("12", b"x")]
    monkeypatch.setattr(
        wire_records, "to_records", lambda *_: (begin, begin + 1, found)
    )
    assert decode_page(body).records is found
    assert decode_page(body).millis_behind == 7
    body = page([], Records2=[])
    assert decode_page(body).records == []


def test_records_without_a_key_need_no_decoding_in_python() -> None:
    if compiled is None:
        pytest.skip("kinesumer-native isn't installed: pip install ./native")
    rows = [fields(n, b"x") for n in range(3)]
    del rows[1]["PartitionKey"]
    _, _, found = compiled(page(rows), Record)
    assert [record.partition_key for record in found] == ["user-1", None, "user-1"]
    assert found == decode_page(page(rows)).records


def test_records_of_an_encrypted_stream_need_no_decoding_in_python() -> None:
    if compiled is None:
        pytest.skip("kinesumer-native isn't installed: pip install ./native")
    rows = [fields(n, b"x") | {"EncryptionType": "KMS"} for n in range(3)]
    _, _, found = compiled(page(rows), Record)
    assert found == decode_page(page(rows)).records
