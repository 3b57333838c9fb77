from __future__ import annotations

import pytest

from kinesumer.wire.cbor import Milliseconds, encode, is_map


# The examples of RFC 8949, appendix A, of what kinesumer and the embedded AWS send.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (2**64 - 1, "1bffffffffffffffff"),
        (-1, "20"),
        (-1000, "3903e7"),
        (1.1, "fb3ff199999999999a"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        (b"\1\2\3\4", "4401020304"),
        ("IETF", "6449455446"),
        ("ü", "62c3bc"),
        ([1, 2, 3], "83010203"),
        ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
    ],
)
def test_the_examples_of_the_standard_are_written(value: object, text: str) -> None:
    assert encode(value).hex() == text


def test_a_time_of_aws_is_in_milliseconds() -> None:
    assert encode(Milliseconds(1_732_000_000_123)).hex() == "c11b00000193433ea87b"


def test_a_body_in_cbor_is_known_by_its_first_byte() -> None:
    assert is_map(encode({}))
    assert is_map(b"\xbf")
    assert not any(map(is_map, (b"", b"{}", b"[]", b"null", b"<html>")))
