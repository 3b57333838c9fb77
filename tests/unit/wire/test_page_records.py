"""Test that packed records of a page are what the objects of the same page are."""

from __future__ import annotations

import sys
from operator import length_hint
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.records import Record, memory_size
from kinesumer.wire.aggregation import open_in_steps
from kinesumer.wire.cbor import compiled
from kinesumer.wire.page_records import PageRecords
from tests.support.aggregates import User, frame, kinesis_record, message, open_records
from tests.support.cbor import needs_compiled, packed_records, page, record
from tests.support.columns import SOURCE, ListedRecords

pytestmark = needs_compiled


def packed(body: bytes) -> PageRecords:
    """Return the records of a page."""
    assert compiled is not None
    index, _, _ = compiled.read_page(body, b"")
    return PageRecords(compiled, body, index, source=SOURCE)


users = st.builds(
    User, st.text(max_size=3), st.none() | st.integers(0, 99), st.binary(max_size=9)
)
plain_data = st.binary(max_size=300).map(b"plain ".__add__)
kinesis_data = plain_data | st.lists(users, min_size=1, max_size=4).map(
    lambda put: frame(message(put))
)


@st.composite
def opened_pages(draw: st.DrawFn) -> tuple[PageRecords, list[Record]]:
    """Draw the user records of a page, and their objects."""
    given = draw(st.lists(kinesis_data, min_size=1, max_size=4))
    records = [kinesis_record(data, str(at)) for at, data in enumerate(given)]
    steps = [*open_in_steps(packed_records(records), SOURCE)]
    found = steps[0].opened.records
    assert isinstance(found, PageRecords)
    return found, [*open_records(records, SOURCE).records]


@st.composite
def plain_pages(draw: st.DrawFn) -> tuple[PageRecords, list[Record]]:
    """Draw a page, and the objects of its records."""
    given, expected = [], []
    for number in range(draw(st.integers(1, 6))):
        data = draw(st.binary(max_size=300))
        key = draw(st.none() | st.text(min_size=1, max_size=9))
        fields = record(10**55 + number, data)
        if key is None:
            del fields["PartitionKey"]
        else:
            fields["PartitionKey"] = key
        given.append(fields)
        arrived = (1_732_531_200_789 + (10**55 + number) % 1000) / 1000
        expected.append(Record(str(10**55 + number), data, key, arrived, source=SOURCE))
    return packed(page(given)), expected


def pages() -> st.SearchStrategy[tuple[PageRecords, list[Record]]]:
    """Draw records in one page, and their objects."""
    return plain_pages() | opened_pages()


@given(pages(), st.data())
def test_they_are_a_sequence_of_the_records(
    drawn: tuple[PageRecords, list[Record]], data: st.DataObject
) -> None:
    found, expected = drawn
    part = slice(data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9)))
    assert found == expected
    assert found != expected[1:]
    assert repr(found) == repr(expected)
    assert found[part] == expected[part]
    assert found[part][1:] == expected[part][1:]
    assert found[::-1] == expected[::-1]
    count = len(expected)
    assert [found[index] for index in range(-count, count)] == 2 * expected
    assert memory_size(found[part]) == memory_size(expected[part])
    for index in (count, -count - 1):
        with pytest.raises(IndexError):
            found[index]


@given(pages(), st.data())
def test_columns_copies_and_parts_have_the_same_records(
    drawn: tuple[PageRecords, list[Record]], data: st.DataObject
) -> None:
    found, expected = drawn
    first = data.draw(st.integers(0, len(expected) - 1))
    part, expected = found[first:], expected[first:]
    assert isinstance(part, PageRecords)
    assert part.columns() == ListedRecords(expected).columns()
    assert part.copied() == expected
    bare = part.copied(has_data=False)
    assert bare == ListedRecords(expected).copied(has_data=False)
    assert bare.data_bytes == 0
    out = data.draw(st.sets(st.integers(0, len(expected) - 1)))
    left = [each for index, each in enumerate(expected) if index not in out]
    assert part.without(out) == left


def test_an_iterator_knows_how_many_records_are_left() -> None:
    found = packed(page([record(number, b"x") for number in range(3)]))
    left = iter(found)
    assert length_hint(left) == 3
    next(left)
    assert length_hint(left) == 2
    assert [each.sequence_number for each in left] == ["1", "2"]
    assert length_hint(left) == 0
    assert next(left, None) is None


def test_an_iterator_goes_on_at_an_index_like_that_of_a_list() -> None:
    records = [record(number, b"x") for number in range(4)]
    for index in (-1, 0, 1, 2, 3, sys.maxsize):
        left, of_list = iter(packed(page(records))[1:]), iter(["1", "2", "3"])
        next(left), next(of_list)
        cast("Any", left).__setstate__(index)
        cast("Any", of_list).__setstate__(index)
        assert length_hint(left) == length_hint(of_list)
        assert [each.sequence_number for each in left] == list(of_list)


def test_a_copy_does_not_keep_the_page() -> None:
    body = page([record(number, b"x" * 1000) for number in range(9)])
    part = packed(body)[3:4]
    assert isinstance(part, PageRecords)
    copied = part.copied()
    assert [len(each.data) for each in copied] == [1000]
    assert len(copied._body) < 1100


def test_an_index_of_another_page_is_refused() -> None:
    assert compiled is not None
    body = page([record(1, b"x" * 100)])
    index, _, _ = compiled.read_page(body, b"")
    with pytest.raises(ValueError, match="another page"):
        next(compiled.iterate(body[:-90], index, 0, 1, Record, None))
    for first, stop in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(IndexError, match="no such records"):
            compiled.columns(body, index, first, stop)
