"""Retry reads slowly while the KMS key of a stream can't be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.backoff import backoff_seconds
from kinesumer.model.incidents import IncidentKind

if TYPE_CHECKING:
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.errors import KinesumerError
    from kinesumer.runtime.context import ClientContext

# A person or a pipeline has to repair a key, so soon tries only cost requests to KMS,
# which all users of the account share. The first wait is for a throttled key.
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0


class KeyFailures:
    """The failed reads in a row of one shard, whose stream's key can't be used."""

    def __init__(self, context: ClientContext, stream: OpenStream) -> None:
        self._context, self._stream = context, stream
        self._count = 0

    def failed(self, error: KinesumerError) -> None:
        """Note a failed read. The second one in a row is an incident."""
        self._count += 1
        self._context.failure_log.record_failure(self._stream.label, error)
        if self._count > 1:
            kind, arn = IncidentKind.KMS, self._stream.arn
            self._context.incidents.note(kind, stream_arn=arn, error=error)

    def ended(self) -> None:
        """Note a successful read, which ends the incident."""
        if self._count:
            self._count = 0
            arn = self._stream.arn
            self._context.incidents.resolve(IncidentKind.KMS, stream_arn=arn)

    def wait_seconds(self, jitter: float) -> float:
        """Return how long to wait before the next try; ``jitter`` is from 0 to 1."""
        return backoff_seconds(self._count, FIRST_SECONDS, LONGEST_SECONDS, jitter)
