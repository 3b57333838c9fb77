"""Test the format in which messages have headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.faststream import envelope

# What FastStream's Redis broker 0.7.8 writes.
WRITTEN = bytes.fromhex(
    "8942494e0d0a1a0a000100000012000000690004"
    "000e636f7272656c6174696f6e5f696400026331"
    "000c636f6e74656e742d7479706500106170706c69636174696f6e2f6a736f6e"
    "00087265706c795f746f0007616e7377657273"
    "000674656e616e740004626c7565"
    "7b22746f74616c223a20377d"
)
HEADERS = {
    "correlation_id": "c1",
    "content-type": "application/json",
    "reply_to": "answers",
    "tenant": "blue",
}
BODY = b'{"total": 7}'


def test_the_format_is_that_of_faststreams_redis_broker() -> None:
    assert envelope.decode(WRITTEN) == (BODY, HEADERS)
    assert envelope.encode(BODY, HEADERS) == WRITTEN


@given(st.binary(), st.dictionaries(st.text(), st.text()))
def test_what_is_encoded_is_decoded(body: bytes, headers: dict[str, str]) -> None:
    assert envelope.decode(envelope.encode(body, headers)) == (body, headers)


@pytest.mark.parametrize("data", [b"", b'{"data": "x", "headers": {}}', b"\x89PNG"])
def test_data_of_other_producers_is_the_body(data: bytes) -> None:
    assert envelope.decode(data) == (data, {})


@pytest.mark.parametrize(
    "data",
    [
        envelope.IDENTITY,
        WRITTEN[: WRITTEN.index(b"answers")],
        WRITTEN.replace(b"blue", b"\xff\xff\xff\xff"),
        WRITTEN.replace(b"\x00\x00\x00\x69", b"\x00\x00\x00\x20"),
        WRITTEN.replace(b"\x00\x00\x00\x69", b"\x00\x00\xff\xff"),
        WRITTEN.replace(b"\x00\x01", b"\x00\x02", 1),
    ],
)
def test_a_damaged_envelope_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"damaged|cannot be read"):
        envelope.decode(data)


def test_a_header_that_has_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="70000 bytes"):
        envelope.encode(b"", {"long": "x" * 70_000})
