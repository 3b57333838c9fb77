"""Run record processors of amazon_kclpy without Java: ``kinesumer run --kclpy``."""

from kinesumer.kclpy.app import ProcessorApp
from kinesumer.kclpy.checkpointer import (
    Checkpointer,
    CheckpointError,
    PreparedCheckpointer,
)
from kinesumer.kclpy.processor import (
    RecordProcessorBase,
    RecordProcessorBaseV1,
    RecordProcessorBaseV2,
)
from kinesumer.kclpy.shard_processor import ShardNotEndedError

__all__ = [
    "CheckpointError",
    "Checkpointer",
    "PreparedCheckpointer",
    "ProcessorApp",
    "RecordProcessorBase",
    "RecordProcessorBaseV1",
    "RecordProcessorBaseV2",
    "ShardNotEndedError",
]
