"""Test that columns hold what the objects of the same records hold."""

from __future__ import annotations

from operator import length_hint

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.columns import ColumnBatch
from kinesumer.model.records import Batch, Record, memory_size
from tests.support.columns import SOURCE, packed


@st.composite
def pages(draw: st.DrawFn) -> list[Record]:
    """Draw the records of a page, as its decoder makes them."""
    count, has_keys = draw(st.integers(1, 6)), draw(st.booleans())
    keys = st.text(max_size=4) if has_keys else st.none()
    return [
        Record(
            str(10**55 + number),
            draw(st.binary(max_size=5)),
            draw(keys),
            draw(st.integers(0, 2**41)) / 1000,
            source=SOURCE,
        )
        for number in range(count)
    ]


@given(pages(), st.data())
def test_columns_are_the_records_as_a_sequence(
    records: list[Record], data: st.DataObject
) -> None:
    columns = packed(records)
    part = slice(data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6)))
    assert [*columns] == records
    assert [*columns[part]] == records[part]
    assert [*columns[part][1:]] == records[part][1:]
    assert columns[::-1] == records[::-1]
    assert [
        columns[index] for index in range(-len(records), len(records))
    ] == 2 * records
    assert memory_size(columns[part]) == memory_size(records[part])
    for index in (len(records), -len(records) - 1):
        with pytest.raises(IndexError):
            columns[index]


def test_the_iterator_of_columns_knows_how_many_records_are_left() -> None:
    columns = packed([Record(str(number), b"x") for number in range(3)])
    left = iter(columns)
    assert length_hint(left) == 3
    next(left)
    assert length_hint(left) == 2


@given(pages())
def test_columns_without_data_keep_positions_and_arrivals(
    records: list[Record],
) -> None:
    bare = packed(records).without_data()
    assert [each.position for each in bare] == [each.position for each in records]
    assert [each.approximate_arrival_timestamp for each in bare] == [
        each.approximate_arrival_timestamp for each in records
    ]
    assert memory_size(bare) == memory_size([Record("1", b"")] * len(records))


@given(pages(), st.data())
def test_a_batch_has_the_same_arrays_from_columns_and_from_objects(
    records: list[Record], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(records)))
    one = ColumnBatch(packed(records), 5, SOURCE)[first:]
    other = ColumnBatch(records, 5, SOURCE)[first:]
    plain = Batch(records[first:], 5, SOURCE)
    assert one.to_arrow() == other.to_arrow() == plain.to_arrow()
    for name in ("data", "sequence_number", "partition_key", "arrived_at_micros"):
        assert getattr(one, name) == getattr(other, name)
    assert one.sub_sequence_number == other.sub_sequence_number
    assert one.column("data") == one.data
    assert (len(one), one.fence, one.millis_behind) == (
        len(plain),
        plain.fence,
        plain.millis_behind,
    )
    assert [*one.records] == records[first:]


def test_arrays_are_views_of_the_page() -> None:
    columns = packed([Record("1", b"abc", "k", 1.5, source=SOURCE)] * 3)
    batch = ColumnBatch(columns, 0, SOURCE)
    values = batch.data.buffers()[2]
    assert values.address == pa.py_buffer(columns.buffers.data).address
    times = batch.arrived_at_micros.to_numpy(zero_copy_only=True)
    assert times.tolist() == [1_500_000] * 3
