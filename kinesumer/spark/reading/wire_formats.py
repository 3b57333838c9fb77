"""Chooses the wire format of a shard's pages, and asks Kinesis for it."""

from __future__ import annotations

from kinesumer.core.wire_format import Costs, WireFormat, WireFormatChoice
from kinesumer.model.streams import ShardKey
from kinesumer.spark.columnar.cbor_layout import to_columns
from kinesumer.spark.runtime.process_cache import ShardCache

# Without kinesumer-native, each record of a page in CBOR becomes an object.
CBOR_COSTS = Costs(3000.0, 40_000.0) if to_columns is None else Costs(0.0, 5_000.0)


class WireFormatCache(ShardCache[tuple[ShardKey, WireFormat], WireFormatChoice]):
    """Keeps the choice of each shard, for each value of the option ``wireFormat``."""

    def of(self, shard: ShardKey, setting: WireFormat) -> WireFormatChoice:
        """Return the choice of a shard. The first call creates it."""
        key = shard, setting
        choice = self._entries.get(key) or WireFormatChoice(setting, CBOR_COSTS)
        self._store(key, choice)
        return choice


class ReservedMemory:
    """Memory for a response of any size: the task's budget has reserved it."""

    def __init__(self, *, asks_cbor: bool) -> None:
        self.asks_cbor = asks_cbor

    def covers(self, _size: int | None) -> bool:
        """Return True."""
        return True

    def shrink(self, _size: int) -> None:
        """Do nothing: the task releases the memory after it has decoded the page."""

    async def grow(self, _size: int | None) -> None:
        """Do nothing."""
