"""Replacements, in memory, for the state store and for Kinesis."""

from kinesumer.testing.simulation.memory_kinesis import MemoryKinesis, MemorySource
from kinesumer.testing.simulation.memory_ports import memory_ports
from kinesumer.testing.simulation.memory_store import MemoryStore, Usage

__all__ = ["MemoryKinesis", "MemorySource", "MemoryStore", "Usage", "memory_ports"]
