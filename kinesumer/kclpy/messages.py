"""Hold what methods of record processors get, as ``amazon_kclpy.messages`` does."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from typing import Any, Literal

from kinesumer.kclpy.checkpointer import Checkpointer
from kinesumer.model import records

ShutdownReason = Literal["TERMINATE", "ZOMBIE"]


class Record:
    """A user record: one from Kinesis, or one of a KPL aggregate.

    ``record["partitionKey"]`` and ``record.get("partitionKey")`` return the values that
    the record has in MultiLangDaemon's JSON.
    """

    __slots__ = ("_record",)

    def __init__(self, record: records.Record) -> None:
        self._record = record

    @property
    def binary_data(self) -> bytes:
        """The data."""
        return self._record.data

    @property
    def data(self) -> str:
        """The data in Base64."""
        return b64encode(self._record.data).decode()

    @property
    def partition_key(self) -> str | None:
        """The partition key."""
        return self._record.partition_key

    @property
    def sequence_number(self) -> str:
        """The sequence number, which all records of an aggregate share."""
        return self._record.sequence_number

    @property
    def sub_sequence_number(self) -> int:
        """The index in a KPL aggregate; 0 for other records."""
        return self._record.sub_sequence_number or 0

    @property
    def timestamp_millis(self) -> int:
        """When Kinesis accepted the record, in milliseconds since 1970."""
        return round((self._record.approximate_arrival_timestamp or 0.0) * 1000)

    @property
    def approximate_arrival_timestamp(self) -> datetime:
        """When Kinesis accepted the record, as a naive datetime in local time."""
        # amazon_kclpy returns it without a zone.
        return datetime.fromtimestamp(self.timestamp_millis / 1000)

    def get(self, field: str) -> Any:
        """Return a field of the record in JSON. Raises KeyError for other names."""
        return getattr(self, _FIELDS[field])

    def __getitem__(self, field: str) -> Any:
        return self.get(field)

    def __repr__(self) -> str:
        number, index = self.sequence_number, self.sub_sequence_number
        return f"<Record: sequence_number={number!r}, sub_sequence_number={index}>"


_FIELDS = {
    "data": "data",
    "partitionKey": "partition_key",
    "sequenceNumber": "sequence_number",
    "subSequenceNumber": "sub_sequence_number",
    "approximateArrivalTimestamp": "timestamp_millis",
}


class InitializeInput:
    """The argument of ``initialize()``: the shard, and where it is read from."""

    action = "initialize"

    def __init__(self, shard_id: str, sequence_number: str, index: int) -> None:
        self.shard_id: str = shard_id
        """The shard's id."""
        self.sequence_number: str | None = sequence_number
        """The last checkpoint. Without one, where the shard is read from, as the KCL
        says it: ``TRIM_HORIZON``, ``LATEST`` or ``AT_TIMESTAMP``."""
        self.sub_sequence_number: int = index
        """The index of the last checkpoint in a KPL aggregate, or 0."""


class ProcessRecordsInput:
    """The argument of ``process_records()``."""

    action = "processRecords"

    def __init__(
        self, records: list[Record], millis_behind: int, checkpointer: Checkpointer
    ) -> None:
        self.records: list[Record] = records
        """Records of the shard, in order."""
        self.millis_behind_latest: int = millis_behind
        """The lag of the records behind the shard's newest one, in milliseconds."""
        self.checkpointer: Checkpointer = checkpointer
        """The checkpointer of these and of earlier records."""


class LeaseLostInput:
    """The argument of ``lease_lost()``."""

    action = "leaseLost"


class ShardEndedInput:
    """The argument of ``shard_ended()``, which must checkpoint."""

    action = "shardEnded"

    def __init__(self, checkpointer: Checkpointer) -> None:
        self.checkpointer: Checkpointer = checkpointer
        """The checkpointer of the shard's end."""


class ShutdownRequestedInput:
    """The argument of ``shutdown_requested()``."""

    action = "shutdownRequested"

    def __init__(self, checkpointer: Checkpointer) -> None:
        self.checkpointer: Checkpointer = checkpointer
        """The checkpointer for the time before the shard is given up."""


class ShutdownInput:
    """The argument of ``shutdown()`` of version 2."""

    action = "shutdown"

    def __init__(self, reason: ShutdownReason, checkpointer: Checkpointer) -> None:
        self.reason: ShutdownReason = reason
        """``TERMINATE`` at the shard's end, and ``ZOMBIE`` if the lease is lost."""
        self.checkpointer: Checkpointer = checkpointer
        """The checkpointer of the shard's end. A zombie's checkpoints are refused."""
