"""Test how records are shown to the page."""

from __future__ import annotations

from base64 import b64decode

import pytest

from kinesumer.model.records import Record
from kinesumer.ops.dashboard.records import (
    INDENTED_BYTES,
    SHOWN_BYTES,
    ShownRecord,
    show_record,
)


def shown(data: bytes) -> ShownRecord:
    return show_record(Record("7", data, "key", 1.5))


def test_json_is_indented_and_keeps_its_digits() -> None:
    record = shown(b'{"id":12345678901234567890123,"names":["\xc3\xa9"]}')
    lines = '{\n  "id": 12345678901234567890123,\n  "names": [\n    "é"\n  ]\n}'
    assert (record.kind, record.text) == ("json", lines)


@pytest.mark.parametrize(
    "data", [b"hello\n\tw\xc3\xb6rld", b"{not json", b"", b"[" * 9999]
)
def test_other_text_is_unchanged(data: bytes) -> None:
    record = shown(data)
    assert (record.kind, record.text) == ("text", data.decode())


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\x00b", b"\x1b[31mred", b"[\xff]"])
def test_what_is_not_text_is_in_base64(data: bytes) -> None:
    record = shown(data)
    assert (record.kind, b64decode(record.text)) == ("binary", data)


def test_only_the_beginning_of_large_data_is_shown() -> None:
    for data in (
        b"x" * 20_000,
        b"a" + "é".encode() * 10_000,
        b"[1" + b",1" * 10_000 + b"]",
    ):
        record = shown(data)
        assert record.kind == "text"
        assert (record.bytes, record.shown_bytes) == (len(data), SHOWN_BYTES)
        assert data.startswith(record.text.encode())
        assert SHOWN_BYTES - 4 < len(record.text.encode()) <= SHOWN_BYTES
    assert shown(b"\xff" * 20_000).kind == "binary"


def test_hostile_json_does_not_grow_without_limit() -> None:
    for data in (
        b"[" * 400 + b"1" + b",1" * 7_500 + b"]" * 400,
        b"[" * 900 + b"]" * 900,
    ):
        record = shown(data)
        assert (record.kind, record.text) == ("json", data.decode())
        assert len(record.text) <= INDENTED_BYTES
