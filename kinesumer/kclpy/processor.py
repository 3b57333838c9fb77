"""Define the record processors of amazon_kclpy, in all three versions.

As there, a subclass may leave out methods. A method that is called nevertheless raises
NotImplementedError, which is logged.
"""

from __future__ import annotations

from typing import Any, Protocol

from kinesumer.errors import ConfigurationError
from kinesumer.kclpy.checkpointer import Checkpointer, closed_checkpointer
from kinesumer.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownInput,
    ShutdownReason,
    ShutdownRequestedInput,
)


class RecordProcessorBase:
    """A record processor of version 3: what processes the records of one shard.

    ``initialize()`` is called first, then ``process_records()`` with all records, and
    ``shard_ended()`` or ``lease_lost()`` last. All calls for a shard come from one
    thread. An error of a method is logged, and the processor goes on, as with the KCL.
    """

    version = 3

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Prepare for the records of a shard."""
        raise NotImplementedError

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process records. ``process_records_input.checkpointer`` stores progress."""
        raise NotImplementedError

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Clean up after the shard has gone to another client."""
        raise NotImplementedError

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Checkpoint the end of the shard, so that its children are processed."""
        raise NotImplementedError

    def shutdown_requested(
        self, shutdown_requested_input: ShutdownRequestedInput
    ) -> None:
        """Checkpoint before the shard goes to another client. ``lease_lost()`` follows.

        The next client continues after this checkpoint.
        """
        raise NotImplementedError


class RecordProcessorBaseV2:
    """A record processor of version 2."""

    version = 2

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Prepare for the records of a shard."""
        raise NotImplementedError

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process records."""
        raise NotImplementedError

    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        """Clean up. If the reason is ``TERMINATE``, checkpoint the end of the shard."""
        raise NotImplementedError

    def shutdown_requested(
        self, shutdown_requested_input: ShutdownRequestedInput
    ) -> None:
        """Checkpoint before the shard goes to another client."""


class RecordProcessorBaseV1:
    """A record processor of version 1: ``amazon_kclpy.kcl.RecordProcessorBase``."""

    version = 1

    def initialize(self, shard_id: str) -> None:
        """Prepare for the records of a shard."""
        raise NotImplementedError

    def process_records(
        self, records: list[Record], checkpointer: Checkpointer
    ) -> None:
        """Process records."""
        raise NotImplementedError

    def shutdown(self, checkpointer: Checkpointer, reason: ShutdownReason) -> None:
        """Clean up. If the reason is ``TERMINATE``, checkpoint the end of the shard."""
        raise NotImplementedError

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Checkpoint before the shard goes to another client."""


class Processor(Protocol):
    """A processor of version 3, which is called with a shard's records."""

    def initialize(self, initialize_input: InitializeInput, /) -> object:
        """Prepare for the records of a shard."""

    def process_records(self, process_records_input: ProcessRecordsInput, /) -> object:
        """Process records."""

    def lease_lost(self, lease_lost_input: LeaseLostInput, /) -> object:
        """Clean up."""

    def shard_ended(self, shard_ended_input: ShardEndedInput, /) -> object:
        """Checkpoint the end of the shard."""

    def shutdown_requested(
        self, shutdown_requested_input: ShutdownRequestedInput, /
    ) -> object:
        """Checkpoint before the shard is given up."""


class _FromV2:
    """Calls a processor of version 2 as one of version 3."""

    def __init__(self, processor: Any) -> None:
        self.initialize = processor.initialize
        self.process_records = processor.process_records
        self.shutdown_requested = processor.shutdown_requested
        self._shutdown = processor.shutdown

    def lease_lost(self, _: LeaseLostInput) -> None:
        self._shutdown(ShutdownInput("ZOMBIE", closed_checkpointer()))

    def shard_ended(self, ended: ShardEndedInput) -> None:
        self._shutdown(ShutdownInput("TERMINATE", ended.checkpointer))


class _FromV1:
    """Calls a processor of version 1 as one of version 3."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def initialize(self, given: InitializeInput) -> None:
        self._processor.initialize(given.shard_id)

    def process_records(self, given: ProcessRecordsInput) -> None:
        self._processor.process_records(given.records, given.checkpointer)

    def lease_lost(self, _: LeaseLostInput) -> None:
        self._processor.shutdown(closed_checkpointer(), "ZOMBIE")

    def shard_ended(self, ended: ShardEndedInput) -> None:
        self._processor.shutdown(ended.checkpointer, "TERMINATE")

    def shutdown_requested(self, requested: ShutdownRequestedInput) -> None:
        self._processor.shutdown_requested(requested.checkpointer)


def as_v3(processor: Any) -> Processor:
    """Return a processor that is called as one of version 3.

    Raises ConfigurationError if its attribute ``version`` is not 1, 2 or 3.
    """
    version = getattr(processor, "version", None)
    if version == 1:
        return _FromV1(processor)
    if version == 2:
        return _FromV2(processor)
    if version == 3:
        v3: Processor = processor
        return v3
    raise ConfigurationError(
        f"{type(processor).__name__} can't be a record processor, because its version "
        f"is {version!r}: let it have a RecordProcessorBase of amazon_kclpy as base"
    )
