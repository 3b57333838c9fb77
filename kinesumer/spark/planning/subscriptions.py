"""Decides which ranges of a batch are read by subscriptions (enhanced fan-out).

A subscription has 2 MB/s of a shard for itself. But Kinesis permits a shard's next
subscription only five seconds after the last one began. A page of GetRecords has up to
10 MB, so polling reads a small range at once if no other app reads the shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.model.streams import Stream
    from kinesumer.ports import Clock

# Ranges of fewer bytes are polled, unless other apps read the shard.
SMALL_BYTES = 1_000_000
# The time between two subscriptions of a shard. The tasks begin some time after their
# plan, so this is longer than Kinesis's five seconds.
PERIOD_SECONDS = 6.0


class Subscriptions:
    """The stream consumer of one stream, and when its subscriptions began."""

    def __init__(self, clock: Clock) -> None:
        self.consumer_arn: str | None = None
        self._clock = clock
        self._created_at: float | None = None  # of the stream with the consumer
        self._planned_at: dict[str, float] = {}  # by shard id

    async def find_consumer(
        self,
        stream: Stream,
        created_at: float,
        find: Callable[[Stream], Awaitable[str]],
    ) -> None:
        """Find or register the consumer, unless that was done since the creation.

        ``created_at`` is when the stream was created, in seconds since 1970.
        """
        if self._created_at != created_at:
            self.consumer_arn = await find(stream)
            self._created_at = created_at

    def begin(self, shard_id: str, estimated_bytes: int, *, is_shared: bool) -> bool:
        """Return whether to subscribe to a shard now, and note it.

        ``is_shared`` is true if Kinesis has recently refused reads of the shard, since
        others read it, too.
        """
        if self.consumer_arn is None:
            return False
        if estimated_bytes < SMALL_BYTES and not is_shared:
            return False
        now = self._clock.now()
        last = self._planned_at.get(shard_id)
        if last is not None and now - last < PERIOD_SECONDS:
            return False
        self._planned_at[shard_id] = now
        return True

    def keep_only(self, shard_ids: set[str]) -> None:
        """Drop the state of all shards except the given ones."""
        for shard_id in self._planned_at.keys() - shard_ids:
            del self._planned_at[shard_id]
