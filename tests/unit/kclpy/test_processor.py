"""Test how processors of the three versions are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.kclpy import (
    Checkpointer,
    CheckpointError,
    RecordProcessorBase,
    RecordProcessorBaseV1,
    RecordProcessorBaseV2,
)
from kinesumer.kclpy.checkpointer import closed_checkpointer
from kinesumer.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownInput,
    ShutdownRequestedInput,
)
from kinesumer.kclpy.processor import as_v3

CHECKPOINTER = closed_checkpointer()
BEGIN = InitializeInput("shard", "10", 0)
BATCH = ProcessRecordsInput([], 5, CHECKPOINTER)
REQUESTED = ShutdownRequestedInput(CHECKPOINTER)
LOST = LeaseLostInput()
ENDED = ShardEndedInput(CHECKPOINTER)


class V1(RecordProcessorBaseV1):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def initialize(self, shard_id: str) -> None:
        self.calls.append(shard_id)

    def process_records(self, records: Any, checkpointer: Checkpointer) -> None:
        self.calls.append((records, checkpointer))

    def shutdown(self, checkpointer: Checkpointer, reason: str) -> None:
        self.calls.append((reason, checkpointer))


class V2(RecordProcessorBaseV2):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def initialize(self, initialize_input: InitializeInput) -> None:
        self.calls.append(initialize_input)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        self.calls.append(process_records_input)

    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        self.calls.append((shutdown_input.reason, shutdown_input.checkpointer))


def call_all(processor: Any) -> None:
    """Call each method of a processor of version 3."""
    processor.initialize(BEGIN)
    processor.process_records(BATCH)
    processor.shutdown_requested(REQUESTED)
    processor.lease_lost(LOST)
    processor.shard_ended(ENDED)


def test_version_3_is_called_as_it_is() -> None:
    processor = RecordProcessorBase()
    assert as_v3(processor) is processor


def test_version_2_gets_inputs_and_a_shutdown_for_both_ends() -> None:
    processor = V2()
    call_all(as_v3(processor))
    begun, batch, (zombie, refusing), ended = processor.calls
    assert (begun, batch, zombie) == (BEGIN, BATCH, "ZOMBIE")
    assert ended == ("TERMINATE", CHECKPOINTER)
    with pytest.raises(CheckpointError, match="ShutdownException"):
        refusing.checkpoint()


def test_version_1_gets_plain_arguments() -> None:
    processor = V1()
    call_all(as_v3(processor))
    begun, batch, (zombie, _), ended = processor.calls
    assert (begun, batch, zombie) == ("shard", ([], CHECKPOINTER), "ZOMBIE")
    assert ended == ("TERMINATE", CHECKPOINTER)


@pytest.mark.parametrize("processor", [V1(), V2()])
def test_a_processor_need_not_be_told_of_a_shutdown(processor: Any) -> None:
    as_v3(processor).shutdown_requested(REQUESTED)
    assert processor.calls == []


@pytest.mark.parametrize(
    "processor",
    [RecordProcessorBase(), RecordProcessorBaseV2(), RecordProcessorBaseV1()],
)
def test_what_a_processor_lacks_raises_when_it_is_called(processor: Any) -> None:
    with pytest.raises(NotImplementedError):
        as_v3(processor).process_records(BATCH)


@pytest.mark.parametrize("version", [None, 4])
def test_something_else_is_no_processor(version: int | None) -> None:
    other: Any = SimpleNamespace() if version is None else SimpleNamespace(version=4)
    with pytest.raises(ConfigurationError, match=f"its version is {version}: let"):
        as_v3(other)
