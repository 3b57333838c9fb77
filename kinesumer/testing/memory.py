"""Replacements, in memory, for the state store and for Kinesis."""

from kinesumer.testing.simulation.memory_kinesis import (
    MemoryKinesis,
    MemoryShard,
    MemorySource,
    MemoryStream,
    StoredRecord,
)
from kinesumer.testing.simulation.memory_store import MemoryStore, Usage

__all__ = [
    "MemoryKinesis",
    "MemoryShard",
    "MemorySource",
    "MemoryStore",
    "MemoryStream",
    "StoredRecord",
    "Usage",
]
