from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.wire_format import COMPILED, PYTHON, WireFormatChoice


def after(*pages: tuple[int, int]) -> WireFormatChoice:
    """Return a choice after pages, each with a number of records and their size."""
    choice = WireFormatChoice("auto", PYTHON)
    for records, size in pages:
        choice.note_page(records * size, records)
    return choice


def test_large_records_are_read_as_cbor_and_small_ones_as_json() -> None:
    assert not after().is_cbor
    assert not after((10_000, 100)).is_cbor
    assert not after((2_000, 1_000)).is_cbor
    assert after((1_000, 5_000)).is_cbor
    assert after((10, 1_000_000)).is_cbor


def test_a_few_records_are_read_as_json() -> None:
    assert not after((1, 10_000)).is_cbor
    assert after((1, 100_000)).is_cbor


def test_pages_without_records_change_nothing() -> None:
    assert after((1_000, 5_000), *[(0, 0)] * 100).is_cbor


def test_a_setting_applies_to_pages_of_every_size() -> None:
    for setting, is_cbor in (("json", False), ("cbor", True)):
        choice = WireFormatChoice(setting, PYTHON)  # type: ignore[arg-type]
        for size in (1, 100_000):
            choice.note_page(100 * size, 100)
            assert choice.is_cbor is is_cbor


def test_the_format_follows_the_size_of_the_records() -> None:
    choice = after(*[(1_000, 5_000)] * 20)
    for _ in range(20):
        choice.note_page(100_000, 1_000)
    assert not choice.is_cbor
    for _ in range(20):
        choice.note_page(5_000_000, 1_000)
    assert choice.is_cbor


@given(
    st.lists(st.tuples(st.integers(500, 1500), st.integers(900, 1300)), max_size=200),
    st.booleans(),
)
def test_records_near_the_limit_do_not_change_the_format(
    pages: list[tuple[int, int]], was_large: bool
) -> None:
    choice = after(*[(1_000, 5_000 if was_large else 200)] * 20)
    changes, before = 0, choice.is_cbor
    for records, size in pages:
        choice.note_page(records * size, records)
        changes += choice.is_cbor is not before
        before = choice.is_cbor
    assert changes <= 1


def test_a_shard_begins_with_the_format_of_its_stream() -> None:
    stream = WireFormatChoice("auto", PYTHON)
    first, second = (WireFormatChoice("auto", PYTHON, stream) for _ in range(2))
    first.note_page(5_000_000, 1_000)
    begins_as_cbor = second.is_cbor
    second.note_page(100_000, 1_000)
    assert (begins_as_cbor, first.is_cbor, second.is_cbor) == (True, True, False)


def test_with_the_compiled_decoder_pages_of_small_records_are_cbor_too() -> None:
    for records, size, is_cbor in (
        (10_000, 20, True),
        (10_000, 100, True),
        (100, 200, True),
        (10, 200, False),
        (1, 20_000, True),
    ):
        choice = WireFormatChoice("auto", COMPILED)
        choice.note_page(records * size, records)
        assert choice.is_cbor is is_cbor
