"""Test that the headers of registries are read, and that hostile ones are refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.decoding.wire_format import (
    parse_confluent,
    parse_glue,
    skip_confluent_indexes,
    skip_glue_index,
)

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
LIMIT_BYTES = 1000


def framed(version: int, compression: int, payload: bytes) -> bytes:
    return bytes([version, compression]) + ID.bytes + payload


def test_glues_header_gives_the_id_and_the_decompressed_data() -> None:
    assert parse_glue(framed(3, 0, b"plain"), 1) == (ID, b"plain")
    packed = zlib.compress(bytes(LIMIT_BYTES))
    assert parse_glue(framed(3, 5, packed), LIMIT_BYTES) == (ID, bytes(LIMIT_BYTES))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too short"),
        (framed(3, 0, b"")[:-1], "17 bytes are too short"),
        (framed(2, 0, b"x"), "the first byte is 2"),
        (framed(3, 1, b"x"), "the compression byte is 1"),
        (framed(3, 5, b"no zlib"), "corrupt"),
        (framed(3, 5, zlib.compress(b"data" * 50)[:-3]), "truncated"),
        (framed(3, 5, zlib.compress(b"data") + b"!"), "1 bytes follow"),
        (framed(3, 5, zlib.compress(bytes(1 << 24))), "more than the limit of 1,000"),
    ],
)
def test_a_hostile_header_of_glue_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_glue(data, LIMIT_BYTES)


def test_confluents_header_gives_the_id_and_the_data() -> None:
    assert parse_confluent(b"\0\0\0\1\2data") == (258, b"data")
    for data, reason in ((b"\0\0\0\1", "too short"), (b"\1\0\0\0\1", "byte is 1")):
        with pytest.raises(ValueError, match=reason):
            parse_confluent(data)


def test_message_indexes_before_a_protobuf_message_are_skipped() -> None:
    assert skip_glue_index(b"\x00data") == b"data"
    assert skip_glue_index(b"\x80\x01data") == b"data"
    assert skip_confluent_indexes(b"\x00data") == b"data"  # stands for [0]
    assert skip_confluent_indexes(b"\x04\x02\x00data") == b"data"  # [1, 0]
    for hostile in (
        b"",
        b"\x80",
        b"\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x02",
        b"\x80" * 9,
    ):
        with pytest.raises(ValueError, match="index"):
            skip_confluent_indexes(hostile)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    compressed = b"\3\5" + data
    calls: list[Callable[[], object]] = [
        lambda: parse_confluent(data),
        lambda: parse_glue(compressed, LIMIT_BYTES),
        lambda: skip_confluent_indexes(data),
        lambda: skip_glue_index(data),
    ]
    for call in calls:
        try:
            call()
        except ValueError as error:
            assert str(error)
