"""Test how CBOR is written, and what the compiled decoder reads and refuses."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinesumer
from kinesumer.wire.cbor import (
    Milliseconds,
    compiled,
    encode,
    find_compiled,
    is_map,
    new_body,
)
from tests.support.cbor import decoded, needs_compiled


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


numbers = st.integers(-(2**63), 2**64 - 1)
plain = st.none() | st.booleans() | numbers | st.text() | st.binary(max_size=300)
values = st.recursive(
    plain,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
LEVELS = 12  # how many arrays, maps and tags may contain each other


def test_the_compiled_decoder_is_used_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("kinesumer.wire._native")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert find_compiled() is module
    monkeypatch.setitem(sys.modules, module.__name__, None)
    assert find_compiled() is None


def test_the_decoder_in_use_has_a_public_name() -> None:
    expected = "json" if compiled is None else "compiled"
    assert kinesumer.decoder() == expected


@needs_compiled
@given(values)
def test_a_value_is_what_it_was_before_it_was_encoded(value: object) -> None:
    assert decoded(encode(value)) == value


@needs_compiled
@given(values, st.data())
def test_a_value_that_is_cut_off_is_refused(value: object, data: st.DataObject) -> None:
    body = encode(value)
    with pytest.raises(ValueError, match="the end is missing"):
        decoded(body[: data.draw(st.integers(0, len(body) - 1))])


@needs_compiled
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_are_refused(body: bytes) -> None:
    try:
        found = decoded(body)
    except ValueError:
        return
    assert found is None or isinstance(
        found, bool | int | float | str | bytes | list | dict
    )


@needs_compiled
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9fff", []),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
    ],
)
def test_arrays_and_maps_may_end_with_a_break(text: str, value: object) -> None:
    assert decoded(bytes.fromhex(text)) == value


@needs_compiled
def test_a_time_of_aws_is_read_in_seconds() -> None:
    assert decoded(encode(Milliseconds(1_732_000_000_123))) == 1_732_000_000.123


@needs_compiled
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the end is missing"),
        (b"\x19\x03", "the end is missing"),
        (b"\x5b" + b"\xff" * 8, "the end is missing"),
        (b"\x9b" + b"\xff" * 8, "the end is missing"),
        (b"\x9f\x01", "the end is missing"),
        (b"\x1c", "a reserved length"),
        (b"\x1f", "an unusual number"),
        (b"\x3b" + b"\xff" * 8, "an unusual number"),
        (b"\x5f\x41a\xff", "a string in parts"),
        (b"\xd7\x00", "an unusual time"),
        (b"\xc1\xfb" + bytes(8), "an unusual time"),
        (b"\xc1\x20", "an unusual time"),
        (b"\xff", "an unusual value"),
        (b"\xf9\x3c\x00", "an unusual value"),
        (b"\x61\xff", "utf-8"),
        (b"\xa1\x00\x00", "another type"),
        (b"\xa2\x61a\x00\x61a\x00", "a name that comes twice"),
        (b"\x00\x00", "bytes after the end"),
        (b"\x81" * (LEVELS + 1) + b"\x00", "too many items or levels"),
        (b"\xbf\x61a" * (LEVELS + 1) + b"\x00", "too many items or levels"),
    ],
)
def test_what_kinesis_does_not_send_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decoded(body)


@needs_compiled
@pytest.mark.parametrize("filling", [b"\x00", b"\xa0", b"\x80", b"\xf6"])
def test_a_body_has_a_limited_number_of_items(filling: bytes) -> None:
    assert decoded(b"\x9f" + filling * 9_999 + b"\xff") is not None
    with pytest.raises(ValueError, match="too many items"):
        decoded(b"\x9f" + filling * 10_000 + b"\xff")


@needs_compiled
def test_arguments_that_are_not_bodies_are_refused() -> None:
    assert compiled is not None
    with pytest.raises(TypeError):
        compiled.decode("text")  # type: ignore[arg-type]
    given: list[object] = [b"", b"", 0, 0, True, None]
    wrong: list[object] = ["text", "text", "0", "0", None, None]
    checked = (("read_page", 2), ("data_bytes", 4), ("columns", 4), ("iterate", 4))
    for name, count in (*checked, ("copy", 4)):
        function = getattr(compiled, name)
        with pytest.raises(TypeError, match=r"takes \d arguments"):
            function(b"")
        more = given[count:] if name in ("iterate", "copy") else []
        more = more[:1] if name == "copy" else more
        for at in range(count):
            changed = [*given[:at], wrong[at], *given[at + 1 : count], *more]
            with pytest.raises(TypeError):
                function(*changed)


def test_a_new_body_has_its_size_and_can_be_filled() -> None:
    for size in (0, 1, 1 << 20):
        body = new_body(size)
        body[:] = bytes(size)
        assert body == bytearray(size)


@needs_compiled
def test_a_body_of_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a negative size"):
        new_body(-1)
