"""The membership of a query, which must be its group's only member."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.coordination.events import Event, Failed, SessionLost, SessionRenewed
from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.startup_checks import find_live_members
from kinesumer.errors import ClientIdInUseError, GroupBusyError
from kinesumer.model.rows import QUERY
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.model.rows import LivenessRow, MemberRow
    from kinesumer.runtime.context import ClientContext

RETRY_SECONDS = 10.0


class Membership:
    """The sessions of a query, one after the other, on the loop that calls ``join``."""

    def __init__(
        self,
        context: ClientContext,
        streams: frozenset[str],
        joined: Callable[[], None],
    ) -> None:
        self.member: MemberRow | None = None
        """The session that holds the group, or None."""
        self.refused: GroupBusyError | None = None
        """The reason why the query doesn't register again."""
        self._context = context
        self._streams = streams
        self._joined = joined
        self._heartbeater: Heartbeater | None = None
        self._registered: MemberRow | None = None
        self._first = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_throttled(self) -> bool:
        """True if the state store throttled the last heartbeat."""
        return self._heartbeater is not None and self._heartbeater.is_throttled

    async def join(self) -> None:
        """Register, and wait until no other member is alive.

        Raises GroupBusyError if another member is alive, and errors of the state store.
        """
        loop = asyncio.get_running_loop()
        task = self._task = loop.create_task(self._run(), name="kinesumer-mirror")
        first = loop.create_task(self._first.wait())
        try:
            await asyncio.wait([task, first], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.leave()
            raise
        finally:
            first.cancel()
        if task.done():
            await task
        if self.refused is not None:
            raise self.refused

    async def leave(self) -> None:
        """Stop the heartbeat, and store that the session has left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._leave_group()

    async def _leave_group(self) -> None:
        session, self._registered = self._registered, None
        if session is not None:
            moment = rows.timestamp_text(self._context.clock.wall())
            await self._context.write(writes.leave(self._context.app, session, moment))

    async def _run(self) -> None:
        while True:
            try:
                await self._hold_group()
            except (GroupBusyError, ClientIdInUseError) as error:
                self.refused = self._refusal(error)
                logger.error("%s", self.refused, extra={"error": str(error)})
                await self._leave_group()
                return
            except Exception as error:
                if not self._first.is_set():
                    await self._leave_group()
                    raise
                self._context.failure_log.record_failure("heartbeat", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _hold_group(self) -> None:
        """Hold the group; raise when the heartbeat fails or another member is alive."""
        events: asyncio.Queue[Event] = asyncio.Queue()
        heart = self._heartbeater = Heartbeater(
            self._context,
            streams=self._streams,
            notify=events.put_nowait,
            oldest_work=lambda: None,
            kind=QUERY,
        )
        beating = asyncio.get_running_loop().create_task(heart.run())
        try:
            while True:
                self._take(await events.get())
                if self.member is None and self._registered is not None:
                    await self._look(self._registered)
        finally:
            self.member = None
            beating.cancel()
            await asyncio.wait([beating])

    def _take(self, event: Event) -> None:
        match event:
            case Failed(error):
                raise error
            case SessionLost(lease):
                logger.warning(
                    "session %s is dead; registering a new one", lease.session
                )
                self.member = self._registered = None
            case SessionRenewed(lease, row) if not lease.dead:
                self._registered = row

    async def _look(self, mine: MemberRow) -> None:
        """Take the group, unless another registered client is alive."""
        living = await find_live_members(self._context, self._read_others)
        if living:
            names = escape_unprintable(
                ", ".join(sorted(member.client_id for member in living))
            )
            raise GroupBusyError(
                "clients",
                f"clients of app {self._context.app!r} are alive: {names}; stop them "
                "and start the query again, or give it another app name",
            )
        self.member = mine
        self._first.set()
        logger.info("holding %s", self._context.app, extra={"session": mine.session})
        self._joined()

    async def _read_others(self) -> list[LivenessRow]:
        context = self._context
        partition = rows.member_key(context.app, "").pk
        found = await context.until_available(
            lambda: context.store.query(partition, consistent=True)
        )
        members = map(rows.read_liveness, found)
        return [m for m in members if m.client_id != context.client_id]

    def _refusal(self, error: Exception) -> GroupBusyError:
        if isinstance(error, GroupBusyError):
            return error
        return GroupBusyError(
            "spark-query",
            f"another Spark query holds app {self._context.app!r} (member "
            f"{self._context.client_id}); stop it and start this one again, or give "
            "this one another app name",
        )
