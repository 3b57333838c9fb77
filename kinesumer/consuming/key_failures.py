"""Retry reads slowly while the KMS key of a stream can't be used."""

from __future__ import annotations

from kinesumer.consuming.streams import OpenStream
from kinesumer.core.backoff import REPAIR_BACKOFF
from kinesumer.errors import KinesumerError
from kinesumer.model.incidents import IncidentKind
from kinesumer.runtime.context import ClientContext


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
        return REPAIR_BACKOFF.wait_seconds(self._count, jitter)
