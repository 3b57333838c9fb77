"""Test that columns hold what the objects of the same records hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.records import Record
from tests.support.columns import SOURCE, ListedRecords, pages


@given(pages(), st.data())
def test_a_batch_has_the_same_arrays_from_columns_and_from_objects(
    records: list[Record], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(records)))
    one = ColumnBatch(ListedRecords(records), 5, SOURCE)[first:]
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


def test_times_are_read_without_a_copy() -> None:
    columns = ListedRecords([Record("1", b"abc", "k", 1.5, source=SOURCE)] * 3)
    batch = ColumnBatch(columns, 0, SOURCE)
    times = batch.arrived_at_micros.to_numpy(zero_copy_only=True)
    assert times.tolist() == [1_500_000] * 3
