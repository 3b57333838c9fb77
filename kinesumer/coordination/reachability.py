"""Report whether this client can read its streams."""

from __future__ import annotations

import asyncio
from typing import Protocol

from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.watchdog import REQUEST_SECONDS
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    TrimmedPositionError,
)
from kinesumer.model.incidents import IncidentKind
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import timeout

PROBE_SECONDS = 5.0
# Errors that prove that Kinesis was reached.
REACHED_ERRORS = (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    TrimmedPositionError,
)


class StreamReader(Protocol):
    """The client whose streams are checked."""

    def streams_by_use(self) -> tuple[list[OpenStream], list[OpenStream]]:
        """Return the streams of which this client owns shards, and the others."""
        ...

    def set_state(self, state: str) -> None:
        """Report a state to the leader with the next heartbeat."""
        ...


class Reachability:
    """Sets a client's state to "degraded" while reads of a stream fail.

    The leader then moves the client's shards to others. After that the client no longer
    reads the failing stream, so it probes the stream to see when reads work again.
    """

    def __init__(self, context: ClientContext, client: StreamReader) -> None:
        self._context = context
        self._client = client
        self._is_degraded = False
        # The ARNs of the streams that were unreachable at the last check.
        self._noted: set[str] = set()

    async def run(self) -> None:
        """Check every few seconds until cancelled."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await self._check()

    async def _check(self) -> None:
        _, idle = self._client.streams_by_use()
        waiting = [stream for stream in idle if stream.failing is not None]
        if self._is_degraded:
            await asyncio.gather(*(self._probe(stream) for stream in waiting))
        for stream in waiting:
            if not self._is_unreachable(stream):
                # No reader of this client repeats these reads, so no success can end
                # the failure.
                stream.failing = None
        reading, _ = self._client.streams_by_use()
        streams = (*reading, *waiting)
        unreachable = [stream for stream in streams if self._is_unreachable(stream)]
        self._note({stream.arn for stream in unreachable})
        if bool(unreachable) != self._is_degraded:
            self._change([stream.label for stream in unreachable])

    def _note(self, arns: set[str]) -> None:
        incidents, kind = self._context.incidents, IncidentKind.UNREACHABLE
        for arn in self._noted - arns:
            incidents.resolve(kind, stream_arn=arn)
        for arn in arns - self._noted:
            incidents.note(kind, stream_arn=arn)
        self._noted = arns

    def _is_unreachable(self, stream: OpenStream) -> bool:
        if stream.failing is None:
            return False
        since, until, *_ = stream.failing
        return until - since > self._context.config.unreachable_after_seconds

    def _change(self, unreachable: list[str]) -> None:
        self._is_degraded = bool(unreachable)
        if unreachable:
            logger.error(
                "can't read %s: the shards move to other clients",
                ", ".join(unreachable),
                extra={"client_id": self._context.client_id, "objects": unreachable},
            )
        else:
            logger.warning(
                "all streams can be read again",
                extra={"client_id": self._context.client_id},
            )
        self._client.set_state("degraded" if unreachable else "up")

    async def _probe(self, stream: OpenStream) -> None:
        """Repeat the failed read, to find out whether it works again."""
        assert stream.failing is not None
        *_, shard_id, after = stream.failing
        source = stream.source
        try:
            async with source.connection(), timeout(REQUEST_SECONDS):
                iterator = await source.get_iterator(shard_id, after)
                await source.get_records(iterator, limit=1)  # without reserved memory
        except REACHED_ERRORS:
            pass
        except TimeoutError:
            return
        except KinesumerError as error:
            self._context.failure_log.record_failure(stream.label, error)
            return
        stream.failing = None
