"""Test reading the rows of a KCL lease table."""

from __future__ import annotations

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import Row, UnsupportedValue, Value
from kinesumer.wire.kcl_leases import StreamId, is_lease, read_lease
from tests.support.fleet import lease_row

SHARD_ID = "shardId-000000000001"


def test_a_key_of_a_table_of_many_streams_names_the_stream() -> None:
    stream = StreamId("123456789012", "my.orders", 7)
    found = read_lease(lease_row(f"{stream}:{SHARD_ID}", leaseOwner="w"))
    assert (found.stream, found.shard_id, found.owner) == (stream, SHARD_ID, "w")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leaseKey", f"123456789012:orders:07:{SHARD_ID}"),  # another spelling of 7
        ("leaseKey", "my shard"),
        ("leaseKey", 1),
        ("checkpoint", "soon"),
        ("leaseCounter", "x"),
        ("leaseCounter", True),
        ("leaseCounter", -1),
    ],
)
def test_an_attribute_that_no_lease_has_is_an_error(name: str, value: Value) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} isn't that of a lease"):
        read_lease(lease_row(SHARD_ID) | {name: value})


def test_a_time_after_the_year_9999_is_an_error() -> None:
    row = lease_row(SHARD_ID, checkpoint="AT_TIMESTAMP")
    assert read_lease(row).checkpoint == "AT_TIMESTAMP"
    with pytest.raises(ConfigurationError):
        read_lease(row | {"checkpointSubSequenceNumber": 10**17})


@pytest.mark.parametrize(
    ("value", "throughput"),
    [
        (2, 2.0),
        ("2", None),
        (UnsupportedValue('{"N": "1.5"}'), 1.5),
        (UnsupportedValue('{"NULL": true}'), None),
    ],
)
def test_the_throughput_is_a_number(value: Value, throughput: float | None) -> None:
    row = lease_row(SHARD_ID) | {"throughputKBps": value}
    assert read_lease(row).throughput == throughput
    assert read_lease(lease_row(SHARD_ID)).throughput is None


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"entityType": "LEASE"}, True),
        ({}, True),
        ({"entityType": "WORKER_METRIC_STATS"}, False),
    ],
)
def test_rows_of_other_types_are_no_leases(row: Row, *, expected: bool) -> None:
    assert is_lease(row) is expected


def test_a_counter_may_be_text() -> None:
    found = read_lease(lease_row(SHARD_ID, leaseCounter="5"))
    assert (found.counter, found.is_counted) == (5, False)
