"""Registers a Spark query as a member of its group, and keeps it registered.

The query must be the group's only member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.membership import Event, Failed, SessionLost, SessionRenewed
from kinesumer.coordination.startup_checks import find_live_members, read_all_liveness
from kinesumer.errors import ClientIdInUseError, GroupBusyError
from kinesumer.model.rows import QUERY, LivenessRow, MemberRow
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import cancel_and_wait, wait_for_start
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes


class Membership:
    """Registers a session of the query, and a new one whenever a session has died.

    Its task runs on the event loop that calls ``join``.
    """

    def __init__(
        self,
        context: ClientContext,
        streams: frozenset[str],
        joined: Callable[[], None],
    ) -> None:
        self.member: MemberRow | None = None  # the session that holds the group, if any
        # Set if the query gave up its membership: the reason.
        self.refused: GroupBusyError | None = None
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
        """Register the query, and return when it holds the group alone.

        Wait for other members that may have died. Raises GroupBusyError if a member
        proves to be alive. Errors of the state store are raised, too.
        """
        self._task = task = asyncio.create_task(self._run(), name="kinesumer-mirror")
        try:
            await wait_for_start(self._first, task)
        except asyncio.CancelledError:
            await self.leave()
            raise
        if task.done():
            await task
        if self.refused is not None:
            raise self.refused

    async def leave(self) -> None:
        """Stop the heartbeat, and mark the session in the state store as left."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        await self._leave_group()

    async def _leave_group(self) -> None:
        session, self._registered = self._registered, None
        if session is not None:
            now = rows.timestamp_text(self._context.clock.wall())
            await self._context.write(writes.leave(self._context.app, session, now))

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
            await asyncio.sleep(self._context.config.commit_interval_seconds)

    async def _hold_group(self) -> None:
        """Keep the query registered. Raises an error if another member is alive."""
        events = asyncio.Queue[Event]()
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
                self._apply(await events.get())
                # Look for others only after registering. Of two members that start at
                # the same time, at least one then sees the other.
                if self.member is None and self._registered is not None:
                    await self._require_no_others()
                    self._hold_as(self._registered)
        finally:
            self.member = None
            await cancel_and_wait(beating)

    def _apply(self, event: Event) -> None:
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

    def _hold_as(self, member: MemberRow) -> None:
        self.member = member
        self._first.set()
        logger.info(
            "joined app %s", self._context.app, extra={"session": member.session}
        )
        self._joined()

    async def _require_no_others(self) -> None:
        living = await find_live_members(self._context, self._read_others)
        if living:
            names = ", ".join(sorted(member.client_id for member in living))
            raise GroupBusyError(
                "clients",
                f"clients of app {self._context.app!r} are alive: "
                f"{escape_unprintable(names)}; stop them "
                "and start the query again, or give it another app name",
            )

    async def _read_others(self) -> list[LivenessRow]:
        members = await read_all_liveness(self._context)
        return [m for m in members if m.client_id != self._context.client_id]

    def _refusal(self, error: Exception) -> GroupBusyError:
        if isinstance(error, GroupBusyError):
            return error
        return GroupBusyError(
            "spark-query",
            f"another Spark query holds app {self._context.app!r} (member "
            f"{self._context.client_id}); stop it and start this one again, or give "
            "this one another app name",
        )
