"""Keep the place of a shard's next read, and what its last pages tell about it."""

from __future__ import annotations

from enum import Enum, auto

from kinesumer.consuming.batch_builder import BatchBuilder
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import SMALL_PAGE_BYTES, PrefetchBuffer, answer_memory
from kinesumer.consuming.read_warnings import ReadWarnings
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.suspects import RECORDS_PER_READ
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.pacing import Pacing
from kinesumer.model.records import Page
from kinesumer.model.streams import Start
from kinesumer.runtime.context import ClientContext
from kinesumer.wire.records import payload_bytes

# A description of a stream stays valid for this time, since deleting a stream and
# creating it again takes longer. AWS allows only 20 descriptions a second.
FRESH_SECONDS = 30.0
# The memory that is reserved at most for a page that is probably small: a reader's
# first one, or one of a caught-up shard. If each reserved a full page, few of thousands
# of shards could be read at a time.
PARTIAL_PAGE_BYTES = 4 * 1024 * 1024


class NoPage(Enum):
    """The reason for which a page was not fetched."""

    OTHER = auto()
    THROTTLED = auto()  # Kinesis throttled the shard
    KEY = auto()  # the key that encrypts the stream can't be used


class ReadPlace:
    """The place and the time of the next read of one shard."""

    def __init__(
        self,
        context: ClientContext,
        stream: OpenStream,
        owned: OwnedShard,
        buffer: PrefetchBuffer,
    ) -> None:
        self.context, self.stream = context, stream
        self.owned, self.buffer = owned, buffer
        self.builder = BatchBuilder(owned, context)
        self.warnings = ReadWarnings(context, stream, owned)
        self.iterator: str | None = None
        self.is_pushed: bool = False  # whether Kinesis sends the records unasked
        self.is_answered = False  # whether Kinesis answered the last call
        self.reserve = PARTIAL_PAGE_BYTES
        # Before the next iterator is requested, the stream's identity must have been
        # checked at this time or later. None means that no check is needed.
        self._confirm_since: float | None = None
        self._confirm_start(context.clock.now() - FRESH_SECONDS)
        self._pacing = Pacing(
            context.clock.now(), stream.stream.min_read_interval_seconds
        )

    async def find(self) -> str:
        """Request an iterator, and return it."""
        if self._confirm_since is not None:
            await self.stream.confirm(self._confirm_since)
            self._confirm_since = None
        source, shard_id = self.stream.source, self.owned.key.shard_id
        self.iterator = await source.get_iterator(shard_id, self.builder.after)
        self.is_pushed = source.is_pushed(self.iterator)
        return self.iterator

    def forget_iterator(self) -> None:
        """Discard the iterator, so that the next read requests a new one."""
        # Many records may have arrived since the last read, so expect a full page.
        self.iterator, self.reserve = None, FULL_PAGE_BYTES
        self._confirm_start(self.context.clock.now())

    def _confirm_start(self, since: float) -> None:
        """Require a check of the stream at ``since`` or later before a start is used.

        If the stream was recreated, Kinesis rejects a position, but accepts a start.
        """
        if isinstance(self.builder.after, Start):
            self._confirm_since = since

    def max_records(self) -> int:
        """Return the record limit of the next read; slow answers make it lower."""
        self._pacing.share_among(self.stream.apps)
        most = self._pacing.page_records(self.context.config.max_records_per_read)
        if self.owned.suspects is not None and self.owned.suspects.is_isolated:
            most = min(most, RECORDS_PER_READ)
        size = self.buffer.window.answer_bytes
        if size == FULL_PAGE_BYTES:
            return most
        return max(1, min(most, size // self.stream.record_bytes))

    def after_failure(self, failure: NoPage = NoPage.OTHER) -> float:
        """Return when to read again after a page wasn't fetched."""
        clock = self.context.clock
        now, jitter = clock.now(), self.context.random.random()
        if failure is NoPage.KEY:
            return now + self.warnings.key_wait_seconds(jitter)
        if failure is NoPage.THROTTLED:
            return self._pacing.after_throttle(now, jitter)
        return self._pacing.after_failure(now, jitter)

    def after_page(self, began: float, page: Page) -> float:
        """Return when to read again after a page whose request began at ``began``."""
        # If the reader is behind, the next page may be full. Otherwise it is small.
        most = FULL_PAGE_BYTES if page.millis_behind else PARTIAL_PAGE_BYTES
        expected = answer_memory(2 * page.wire_bytes)
        self.reserve = max(SMALL_PAGE_BYTES, min(expected, most))
        if page.millis_behind and not page.records:
            self.reserve = FULL_PAGE_BYTES
        return self._pacing.after_page(
            began,
            records=len(page.records),
            payload_bytes=payload_bytes(page),
            millis_behind=page.millis_behind,
        )
