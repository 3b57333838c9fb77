"""Test that what processors get has the names and the values of amazon_kclpy."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from kinesumer.kclpy.checkpointer import closed_checkpointer
from kinesumer.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownInput,
    ShutdownRequestedInput,
)
from kinesumer.model import records

PLAIN = Record(records.Record("10", b"\x00a", "key", 1_636_609_142.123))
PART = Record(records.Record("10", b"b", "key", 1.0, sub_sequence_number=3))


def test_a_record_has_data_key_and_numbers() -> None:
    assert (PLAIN.binary_data, PLAIN.data) == (b"\x00a", "AGE=")
    assert PLAIN.partition_key == "key"
    assert (PLAIN.sequence_number, PLAIN.sub_sequence_number) == ("10", 0)
    assert PART.sub_sequence_number == 3
    assert repr(PART) == "<Record: sequence_number='10', sub_sequence_number=3>"


def test_the_arrival_is_naive_and_local() -> None:
    assert PLAIN.timestamp_millis == 1_636_609_142_123
    expected = datetime.fromtimestamp(1_636_609_142.123)
    assert PLAIN.approximate_arrival_timestamp == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "AGE="),
        ("partitionKey", "key"),
        ("sequenceNumber", "10"),
        ("subSequenceNumber", 0),
        ("approximateArrivalTimestamp", 1_636_609_142_123),
    ],
)
def test_a_record_has_the_fields_of_its_json(field: str, value: object) -> None:
    assert PLAIN[field] == PLAIN.get(field) == value


def test_other_fields_are_a_key_error() -> None:
    with pytest.raises(KeyError):
        PLAIN.get("binary_data")


def test_inputs_have_the_actions_of_the_daemon() -> None:
    checkpointer = closed_checkpointer()
    inputs: list[Any] = [
        InitializeInput("shard", "10", 1),
        ProcessRecordsInput([PLAIN], 5, checkpointer),
        LeaseLostInput(),
        ShardEndedInput(checkpointer),
        ShutdownRequestedInput(checkpointer),
        ShutdownInput("ZOMBIE", checkpointer),
    ]
    actions = "initialize processRecords leaseLost shardEnded shutdownRequested"
    assert [given.action for given in inputs] == [*actions.split(), "shutdown"]
