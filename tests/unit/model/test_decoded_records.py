"""Test that packed records with values are what records with values are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from kinesumer.model.batches import ColumnBatch
from kinesumer.model.decoded_records import DecodedRecords, with_values
from kinesumer.model.records import Record, data_size
from tests.support.columns import SOURCE, ListedRecords, pages


class Order(Struct):
    """A value that refers to no record."""

    number: int
    data: str = "of the order"


@given(pages(), st.data())
def test_packed_records_stay_packed_and_get_the_same_values(
    records: list[Record], data: st.DataObject
) -> None:
    skipped = data.draw(st.sets(st.sampled_from(range(len(records)))))
    stop = data.draw(st.integers(max([*skipped, -1]) + 1, len(records)))
    values = [Order(number) for number in range(stop - len(skipped))]
    packed = with_values(ListedRecords(records), values, skipped)
    listed = with_values(records, values, skipped)
    assert isinstance(packed, DecodedRecords)
    assert isinstance(listed, list)
    part = slice(data.draw(st.integers(0, len(values))), None)
    for one, other in ((packed, listed), (packed[part], listed[part])):
        assert [*one] == [*other] == [one[index] for index in range(len(other))]
        assert data_size(one) == data_size(other)
        table = ColumnBatch(one, 0, SOURCE).to_arrow()
        assert table == ColumnBatch(other, 0, SOURCE).to_arrow()
        assert ColumnBatch(one, 0, SOURCE).data.to_pylist() == [r.data for r in other]


@given(pages(), st.data())
def test_copies_and_parts_keep_the_values(
    records: list[Record], data: st.DataObject
) -> None:
    values = [Order(number) for number in range(len(records))]
    packed = DecodedRecords(ListedRecords(records), values)
    assert [each.value for each in packed.copied(has_data=False)] == values
    left_out = data.draw(st.sets(st.sampled_from(range(len(records)))))
    assert packed.without(left_out) == [
        each for index, each in enumerate(packed) if index not in left_out
    ]
