"""Tells the leader when this client can't reach Kinesis, and when it can again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.consuming.watchdog import REQUEST_SECONDS
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    TrimmedPositionError,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.timeouts import timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.consuming.streams import OpenStream
    from kinesumer.runtime.context import ClientContext

PROBE_SECONDS = 5.0
REACHED_ERRORS = (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    TrimmedPositionError,
)
"""Errors that only who is reached answers with."""


class Reachability:
    """Watches the streams that are read; probes the others while degraded."""

    def __init__(
        self,
        context: ClientContext,
        reading: Callable[[], list[OpenStream]],
        waiting: Callable[[], list[OpenStream]],
        set_state: Callable[[str], None],
    ) -> None:
        self._context = context
        self._reading = reading
        self._waiting = waiting
        self._set_state = set_state
        self._is_degraded = False

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await self._check()

    async def _check(self) -> None:
        waiting = [stream for stream in self._waiting() if stream.failing is not None]
        if self._is_degraded:
            await asyncio.gather(*(self._probe(stream) for stream in waiting))
        for stream in waiting:
            if not self._is_unreachable(stream):
                stream.failing = None  # nothing goes on with it that could succeed
        unreachable = [
            s.label for s in (*self._reading(), *waiting) if self._is_unreachable(s)
        ]
        if bool(unreachable) != self._is_degraded:
            self._change(unreachable)

    def _is_unreachable(self, stream: OpenStream) -> bool:
        if stream.failing is None:
            return False
        since, until, *_ = stream.failing
        return until - since > self._context.config.unreachable_after_seconds

    def _change(self, unreachable: list[str]) -> None:
        self._is_degraded = bool(unreachable)
        if unreachable:
            logger.error(
                "can't read %s: other clients are given the shards",
                ", ".join(unreachable),
                extra={"client_id": self._context.client_id, "objects": unreachable},
            )
        else:
            logger.warning(
                "all streams can be read again",
                extra={"client_id": self._context.client_id},
            )
        self._set_state("degraded" if unreachable else "up")

    async def _probe(self, stream: OpenStream) -> None:
        """Read what couldn't be read: what else is answered tells nothing of that."""
        assert stream.failing is not None
        *_, shard_id, after = stream.failing
        source = stream.source
        try:
            async with source.connection(), timeout(REQUEST_SECONDS):
                iterator = await source.get_iterator(shard_id, after)
                await source.get_records(iterator, limit=1)  # no room is asked for
        except REACHED_ERRORS:
            pass
        except TimeoutError:
            return
        except KinesumerError as error:
            self._context.failure_log.record_failure(stream.label, error)
            return
        stream.failing = None
