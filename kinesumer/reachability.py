"""Tells the leader when this client can't reach Kinesis, and when it can again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.context import logger
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.context import Context
    from kinesumer.streams import OpenStream

PROBE_SECONDS = 5.0


class Reachability:
    """Watches the streams that are read; probes the others while degraded."""

    def __init__(
        self,
        context: Context,
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
            watched = self._reading()
            if self._is_degraded:
                waiting = self._waiting()
                await asyncio.gather(*(self._probe(stream) for stream in waiting))
                watched += waiting
            silent = [stream.label for stream in watched if self._is_silent(stream)]
            if bool(silent) != self._is_degraded:
                self._change(silent)

    def _is_silent(self, stream: OpenStream) -> bool:
        if stream.failing is None:
            return False
        first, last = stream.failing
        return last - first > self._context.config.degraded_seconds

    def _change(self, silent: list[str]) -> None:
        self._is_degraded = bool(silent)
        if silent:
            logger.error(
                "can't read %s: other clients are given the shards",
                ", ".join(silent),
                extra={"client_id": self._context.client_id, "objects": silent},
            )
        else:
            logger.warning(
                "all streams can be read again",
                extra={"client_id": self._context.client_id},
            )
        self._set_state("degraded" if silent else "up")

    async def _probe(self, stream: OpenStream) -> None:
        try:
            await stream.source.describe()
        except KinesumerError as error:
            self._context.health.failed(stream.label, error)
        else:
            stream.failing = None
