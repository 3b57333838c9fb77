"""Warn of what a client finds when it reads a shard, and note the incidents."""

from __future__ import annotations

import logging

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import OpenStream
from kinesumer.core.backoff import REPAIR_BACKOFF
from kinesumer.errors import CorruptRowError, FatalError, KinesumerError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import may_be_trimmed
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows


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
            kind, arn = IncidentKind.KMS, self._stream.arn
            self._context.incidents.note(kind, stream_arn=arn, error=error)

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
        at = self._owned.key._asdict()
        self._context.incidents.note(kind, **at, error=error)

    def position_error(self, error: FatalError) -> CorruptRowError:
        """Return the error of a row whose position Kinesis rejects."""
        key = self._owned.key
        row = rows.shard_key(self._context.app, key, self._owned.row.first_hash)
        return CorruptRowError(
            f"state store row pk={row.pk!r} sk={row.sk!r}: attribute sequence_number "
            f"is not a position in the shard ({error}); correct it, or remove it to "
            "begin at the row's start"
        )
