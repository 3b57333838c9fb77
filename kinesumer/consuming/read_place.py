"""Keep the place of a shard's next read, and warn of what the reads find."""

from __future__ import annotations

import logging

from kinesumer.consuming.batch_builder import BatchBuilder
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import SMALL_PAGE_BYTES, PrefetchBuffer, answer_memory
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.suspects import RECORDS_PER_READ
from kinesumer.core.backoff import REPAIR_BACKOFF
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.pacing import Pacing
from kinesumer.errors import CorruptRowError, FatalError, KinesumerError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import may_be_trimmed
from kinesumer.model.records import Page
from kinesumer.model.streams import Start
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows
from kinesumer.wire.records import payload_bytes

# A description of a stream stays valid for this time, since deleting a stream and
# creating it again takes longer. AWS allows only 20 descriptions a second.
FRESH_SECONDS = 30.0
# The memory that is reserved at most for a page that is probably small: a reader's
# first one, or one of a caught-up shard. If each reserved a full page, few of thousands
# of shards could be read at a time. With this, the default buffer holds 16 of them.
PARTIAL_PAGE_BYTES = FULL_PAGE_BYTES // 4


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

    def after_failure(self) -> float:
        """Return when to read again after a page wasn't fetched."""
        return self._pacing.after_failure(self.context.clock.now(), self._jitter())

    def after_throttle(self) -> float:
        """Return when to read again after Kinesis throttled the shard."""
        return self._pacing.after_throttle(self.context.clock.now(), self._jitter())

    def after_key_failure(self) -> float:
        """Return when to read again if the key of the stream can't be used."""
        wait = self.warnings.key_wait_seconds(self._jitter())
        return self.context.clock.now() + wait

    def _jitter(self) -> float:
        return self.context.random.random()

    def after_page(self, began: float, page: Page) -> float:
        """Return when to read again after a page whose request began at ``began``."""
        # If the reader is behind, the next page may be full. Otherwise it is small.
        most = FULL_PAGE_BYTES if page.millis_behind else PARTIAL_PAGE_BYTES
        # Chosen: the next page may be twice as large.
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


class ReadWarnings:
    """The warnings about one shard while a client owns it."""

    def __init__(
        self, context: ClientContext, stream: OpenStream, owned: OwnedShard
    ) -> None:
        self._context, self._stream, self._owned = context, stream, owned
        # How many reads in a row have failed, because the stream's key can't be used.
        self._key_failures = 0

    def not_ended(self) -> None:
        """Warn of a page that looks like the end of a shard that is open."""
        logger.warning(
            "%s: GetRecords of shard %s returned no NextShardIterator, although the "
            "shard is open; continuing at the same position",
            self._stream.label,
            self._owned.key.shard_id,
            extra=self._owned.log_fields,
        )
        self._note(IncidentKind.UNCONFIRMED_END)

    def position_expired(self, error: KinesumerError) -> None:
        """Log whether records after a position that has expired may be lost."""
        self._expired(
            "the position of shard %s has expired, and nothing came after it",
            "records may be lost to retention, if any came after a position that has "
            "expired: %s",
            error,
        )

    def shard_expired(self, error: KinesumerError) -> None:
        """Log whether records of a shard that has expired may be lost."""
        self._expired(
            "shard %s has expired, and was read to its end",
            "retention has passed a whole shard: records may be lost to retention, if "
            "any came after its position: %s",
            error,
        )

    def _expired(self, complete: str, lossy: str, error: KinesumerError) -> None:
        stream, owned = self._stream, self._owned
        now = stream.service_time.latest()
        if not may_be_trimmed(owned.read_until, stream.retention_seconds, now):
            level, text, about = logging.INFO, complete, owned.key.shard_id
        else:
            level, text, about = logging.WARNING, lossy, str(error)
            self._note(IncidentKind.TRIMMED_POSITION, error)
        logger.log(level, f"%s: {text}", stream.label, about, extra=owned.log_fields)

    def key_failed(self, error: KinesumerError) -> None:
        """Note that the stream's key can't be used. The second time is an incident."""
        self._key_failures += 1
        self._context.failure_log.record_failure(self._stream.label, error)
        if self._key_failures > 1:
            incidents, arn = self._context.incidents, self._stream.arn
            incidents.note(IncidentKind.KMS, arn, error=error)

    def key_works(self) -> None:
        """Note a successful read, which ends the incident of the key."""
        if self._key_failures:
            self._key_failures = 0
            arn = self._stream.arn
            self._context.incidents.resolve(IncidentKind.KMS, stream_arn=arn)

    def key_wait_seconds(self, jitter: float) -> float:
        """Return how long to wait for the key; ``jitter`` is from 0 to 1."""
        return REPAIR_BACKOFF.wait_seconds(self._key_failures, jitter)

    def _note(self, kind: IncidentKind, error: object = "") -> None:
        self._context.incidents.note(kind, *self._owned.key, error=error)

    def position_error(self, error: FatalError) -> CorruptRowError:
        """Return the error of a row whose position Kinesis rejects."""
        key = self._owned.key
        row = rows.shard_key(self._context.app, key, self._owned.row.first_hash)
        return CorruptRowError(
            f"state store row pk={row.pk!r} sk={row.sk!r}: attribute sequence_number "
            f"is not a position in the shard ({error}); correct it, or remove it to "
            "begin at the row's start"
        )
