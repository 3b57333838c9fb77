"""Count the apps of the state store that poll the same streams."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.membership import DEAD_ROW_SECONDS
from kinesumer.errors import AccessDeniedError
from kinesumer.model.rows import AppRow
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import admin_writes, rows, writes

# The interval of counts beside other apps, and the least interval, which applies while
# reads are refused. An app that polls alone counts half as often.
COUNT_SECONDS, LEAST_SECONDS = 60.0, 10.0
# A client writes its app's row if no client did so for this time. If a row is older
# than ALIVE_SECONDS, the app has ended, or all its clients failed to write it twice.
WRITE_SECONDS, ALIVE_SECONDS = 100.0, 240.0


class AppCount:
    """Tells each stream of a client how many apps poll it.

    All apps of the state store have a row in one partition. No ownership depends on
    these rows, so they have times of the clients' wall clocks.
    """

    def __init__(
        self, context: ClientContext, streams: Callable[[], Collection[OpenStream]]
    ) -> None:
        """``streams`` returns the streams that the client consumes."""
        self._context, self._streams = context, streams
        self._counted_at = -math.inf

    async def run(self) -> None:
        """Count at intervals until cancelled, or until the rows can't be accessed."""
        try:
            while True:
                if self._is_due():
                    await self._count()
                await asyncio.sleep(LEAST_SECONDS)
        except AccessDeniedError as error:
            logger.warning(
                "can't count the apps that poll the same streams, so only refused "
                "reads set this client's pace: %s",
                error,
                extra={"app": self._context.app, "error": str(error)},
            )

    def _is_due(self) -> bool:
        streams = self._streams()
        if any(stream.throttled_at > self._counted_at for stream in streams):
            return True
        is_alone = all(stream.apps == 1 for stream in streams)
        interval = 2 * COUNT_SECONDS if is_alone else COUNT_SECONDS
        return self._context.clock.now() - self._counted_at >= interval

    async def _count(self) -> None:
        context = self._context
        self._counted_at = context.clock.now()
        stored = await context.query(rows.APPS, consistent=False)
        apps = context.parse_rows(rows.read_app, stored)
        wall = context.clock.wall()
        alive = [app for app in apps if wall - app.updated_at < ALIVE_SECONDS]
        others = [app for app in alive if app.app != context.app]
        for stream in self._streams():
            stream.apps = 1 + sum(stream.arn in app.streams for app in others)
        own = [app for app in apps if app.app == context.app]
        if not own or wall - own[0].updated_at >= WRITE_SECONDS:
            await self._announce(own[0] if own else None, wall)
        for app in apps:
            if wall - app.updated_at >= DEAD_ROW_SECONDS:
                await context.write(admin_writes.delete(rows.app_key(app.app)))

    async def _announce(self, stored: AppRow | None, wall: float) -> None:
        streams = frozenset(
            stream.arn for stream in self._streams() if stream.fan_out_polling != 0
        )
        if streams:
            write = writes.announce(self._context.app, streams, stored, wall)
            await self._context.write(write)
