"""Test the records and batches for unit tests of handlers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kinesumer import Record
from kinesumer.errors import ConfigurationError
from kinesumer.testing import batch, record

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_record_has_what_a_delivered_record_has() -> None:
    made = record(
        b"one", partition_key="k", stream="orders", shard_id="s", arrived_at=NOON
    )
    assert (made.data, made.partition_key, made.arrived_at) == (b"one", "k", NOON)
    assert record(b"of a stream with AUTO", partition_key=None).partition_key is None
    assert (made.stream, made.shard_id) == ("orders", "s")
    assert made.stream_arn.endswith(":stream/orders")
    assert made.fence.shard == (made.stream_arn, "s")
    assert made.fence.position == made.position
    other = record(
        b"two", stream="arn:aws:kinesis:eu-west-1:1:stream/payments", epoch=7
    )
    assert (other.stream, other.fence.epoch) == ("payments", 7)


def test_a_record_may_have_a_decoded_value() -> None:
    assert record(b"1").value == b"1"
    number: Record[int] = record(b"1", value=1)
    assert (number.value, number.data, number.stream) == (1, b"1", "orders")


def test_records_are_in_the_order_in_which_they_were_built() -> None:
    one, two = record(b""), record(b"")
    assert one.position < two.position
    assert record(b"", sequence_number="49", sub_sequence_number=3).position == (
        "49",
        3,
    )


def test_a_batch_has_records_of_one_shard() -> None:
    made = batch([record(b"one"), record(b"two")], millis_behind=5)
    assert [one.data for one in made.records] == [b"one", b"two"]
    assert (made.stream, made.millis_behind) == ("orders", 5)
    assert made.fence.position == made.records[-1].position
    assert batch([b"one"], stream="payments", shard_id="s").records[0].shard_id == "s"
    assert len(batch([], stream="payments")) == 0


def test_what_no_client_would_deliver_is_refused() -> None:
    text: Any = "text"
    with pytest.raises(ConfigurationError, match="must be bytes"):
        record(text)
    with pytest.raises(ConfigurationError, match="no time zone"):
        record(b"", arrived_at=datetime(2026, 1, 31))
    for records in (
        [record(b"", shard_id="a"), record(b"", shard_id="b")],
        [Record("1", b"")],
    ):
        with pytest.raises(ConfigurationError, match="one shard"):
            batch(records)
