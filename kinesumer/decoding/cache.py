"""Look schemas up in a registry: once for all calls, with retries, and cached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from kinesumer.errors import (
    KinesumerError,
    SchemaRegistryUnavailableError,
    TransientError,
)
from kinesumer.runtime.failure_log import RepeatedLines, logger
from kinesumer.runtime.refusals import refusal_errors
from kinesumer.runtime.retries import Retries

K = TypeVar("K")
Decode = Callable[[bytes], Any]

MAX_SCHEMAS = 1000
RETRIES = Retries((TransientError,), max_attempts=6, waits_for_credentials=True)
# How long an id is refused that the registry does not know, or whose schema is invalid.
# A stream may have many records with such an id.
REFUSED_SECONDS = 30.0


class SchemaCache(Generic[K]):
    """The decoders of schemas by the schemas' ids.

    ``fetch`` returns the decoder of an id. It raises TransientError if a retry may
    help, and ValueError if the id or its schema is invalid. At most ``MAX_SCHEMAS``
    decoders are kept; those that were fetched first are dropped first.
    """

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[Decode]],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._now = fetch, now
        self._decoders: dict[K, Decode] = {}
        self._lines = RepeatedLines()
        self._refused: dict[K, tuple[float, str]] = {}
        # Look-ups that are running, by event loop and id.
        self._pending: dict[tuple[object, K], asyncio.Task[Decode]] = {}
        # The decoder of an id that was fetched before, or None. Any thread may call it.
        self.get: Callable[[K], Decode | None] = self._decoders.get

    async def find(self, id: K) -> Decode:
        """Return the decoder of an id, and look the schema up if necessary.

        Calls for one id on one event loop share one look-up. Raises ValueError,
        SchemaRegistryUnavailableError after several attempts, and other errors of
        ``fetch`` without a retry.
        """
        if (decode := self.get(id)) is not None:
            return decode
        until, reason = self._refused.get(id, (0.0, ""))
        if reason and self._now() < until:
            raise ValueError(reason)
        loop = asyncio.get_running_loop()
        task = self._pending.get((loop, id))
        if task is None:
            task = self._pending[loop, id] = loop.create_task(self._fetched(id))
            task.add_done_callback(partial(self._store, loop, id))
        # A caller that is cancelled does not cancel the look-up of the others.
        return await asyncio.shield(task)

    async def _fetched(self, id: K) -> Decode:
        try:
            return await RETRIES.call(self._ask, id, on_failure=self._log_waiting)
        except TransientError as error:
            raise SchemaRegistryUnavailableError(
                f"{error}; {RETRIES.max_attempts} attempts failed: check that the "
                "schema registry is up and can be reached, and start again"
            ) from error

    async def _ask(self, id: K) -> Decode:
        # A module may be imported only now, which needs a descriptor.
        with refusal_errors("a schema", SchemaRegistryUnavailableError):
            return await self._fetch(id)

    def _log_waiting(self, error: TransientError) -> None:
        if error.lacks_credentials and self._lines.is_due("registry", self._now()):
            logger.warning(
                "the schema registry can't be asked, trying again: %s", error
            )

    def _store(self, loop: object, id: K, task: asyncio.Task[Decode]) -> None:
        del self._pending[loop, id]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            _insert(self._decoders, id, task.result())
            self._refused.pop(id, None)
        elif isinstance(error, ValueError) and not isinstance(error, KinesumerError):
            _insert(self._refused, id, (self._now() + REFUSED_SECONDS, str(error)))


def _insert(into: dict[K, Any], id: K, value: Any) -> None:
    into.pop(id, None)
    if len(into) >= MAX_SCHEMAS:
        del into[next(iter(into))]
    into[id] = value
