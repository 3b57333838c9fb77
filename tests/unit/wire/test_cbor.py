from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.wire import cbor
from kinesumer.wire.cbor import MAX_DEPTH, CborError, CborReader, Milliseconds, encode

numbers = st.integers(-(2**64), 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | floats
values = st.recursive(
    plain | st.text() | st.binary(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def read(body: bytes) -> object:
    reader = CborReader(body)
    value = reader.item()
    assert reader.at == len(body)
    return value


@given(values)
def test_a_value_is_what_it_was_before_it_was_encoded(value: object) -> None:
    assert read(encode(value)) == value


# The examples of RFC 8949, appendix A, of which there are answers of AWS.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("00", 0),
        ("17", 23),
        ("1818", 24),
        ("1903e8", 1000),
        ("1a000f4240", 1000000),
        ("1b000000e8d4a51000", 1000000000000),
        ("1bffffffffffffffff", 2**64 - 1),
        ("3bffffffffffffffff", -(2**64)),
        ("20", -1),
        ("3903e7", -1000),
        ("f93c00", 1.0),
        ("fa47c35000", 100000.0),
        ("fb3ff199999999999a", 1.1),
        ("f4", False),
        ("f5", True),
        ("f6", None),
        ("4401020304", b"\1\2\3\4"),
        ("6449455446", "IETF"),
        ("62c3bc", "ü"),
        ("83010203", [1, 2, 3]),
        ("a201020304", None),
        ("5f42010243030405ff", b"\1\2\3\4\5"),
        ("7f657374726561646d696e67ff", "streaming"),
        ("9fff", []),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
        ("d74401020304", b"\1\2\3\4"),
    ],
)
def test_the_examples_of_the_standard_are_read(text: str, value: object) -> None:
    body = bytes.fromhex(text)
    if text == "a201020304":  # keys that are not texts
        with pytest.raises(CborError, match="a key that is not a text at byte 1"):
            read(body)
    else:
        assert read(body) == value


def test_a_time_of_aws_is_in_milliseconds() -> None:
    assert encode(Milliseconds(1_732_000_000_123)).startswith(b"\xc1\x1b")
    assert read(encode(Milliseconds(1_732_000_000_123))) == 1_732_000_000.123


def test_a_tag_within_the_tag_of_a_time_makes_it_a_number() -> None:
    assert read(b"\xc1\xd4" + encode(5000)) == 5000


def test_a_time_of_the_standard_is_in_seconds() -> None:
    assert read(b"\xc1" + encode(1.5)) == 1.5


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the end is missing"),
        (b"\x19\x03", "the end is missing"),
        (b"\x44\x01", "the end is missing"),
        (b"\x5b" + b"\xff" * 8, "the end is missing"),
        (b"\x9b" + b"\xff" * 8, "the end is missing"),
        (b"\xbf", "the end is missing"),
        (b"\x9f\x01", "the end is missing"),
        (b"\x1c", "the reserved length 28 at byte 0"),
        (b"\x1f", "a number or a tag without an end at byte 0"),
        (b"\xdf\x00\xff", "a number or a tag without an end at byte 0"),
        (b"\xff", "the value 0xff at byte 0"),
        (b"\x81\xff", "the value 0xff at byte 1"),
        (b"\xf0", "the value 0xf0 at byte 0"),
        (b"\xf9\x7c\x00", "the value 0xf9 at byte 0"),
        (b"\xfb\x7f\xf8" + bytes(6), "the value 0xfb at byte 0"),
        (b"\x61\xff", "a text that is not UTF-8"),
        (b"\x7f\x41a\xff", "a part of another type at byte 1"),
        (b"\x7f\x7f\xff\xff", "a part of another type at byte 1"),
        (b"\xa1\xff\x00", "a key that is not a text"),
        (b"\x81" * (MAX_DEPTH + 1) + b"\x00", "more than 12 levels"),
        (b"\xc1" * (MAX_DEPTH + 1) + b"\x00", "more than 12 levels"),
        (b"\xbf\x61a" * (MAX_DEPTH + 1), "more than 12 levels"),
    ],
)
def test_what_kinesis_does_not_send_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(CborError, match=reason):
        read(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_are_refused(body: bytes) -> None:
    reader = CborReader(body)
    try:
        reader.item()
    except CborError:
        return
    assert reader.at <= len(body)


@given(values, st.data())
def test_a_value_that_is_cut_off_is_refused(value: object, data: st.DataObject) -> None:
    body = encode(value)
    with pytest.raises(CborError):
        CborReader(body[: data.draw(st.integers(0, len(body) - 1))]).item()


def test_a_short_float_has_the_precision_that_it_was_sent_with() -> None:
    assert read(b"\xfa" + struct.pack(">f", 0.1)) == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("filling", [b"\x00", b"\xa0", b"\x80", b"\xf6"])
def test_an_answer_has_a_limited_number_of_items(
    monkeypatch: pytest.MonkeyPatch, filling: bytes
) -> None:
    monkeypatch.setattr(cbor, "MAX_ITEMS", 1_000)
    assert len(str(read(b"\x9f" + filling * 999 + b"\xff"))) > 999
    with pytest.raises(CborError, match="more than 1,000 items"):
        read(b"\x9f" + filling * 1_000 + b"\xff")
