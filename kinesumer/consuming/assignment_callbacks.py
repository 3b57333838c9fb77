"""Call user code when a client begins and ends to deliver a shard's records."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.watchdog import InFlightWork, task_stack, thread_stack
from kinesumer.errors import KinesumerError
from kinesumer.model.owned import AssignedShard, OnAssigned, OnRevoked, RevokeReason
from kinesumer.model.streams import ShardKey
from kinesumer.model.validation import is_async, require_function
from kinesumer.ports import Clock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import MAX_THREADS, Threads

# Time that calls of user code have to end, after ``drain_timeout_seconds`` or when they
# are cancelled. Chosen: enough to close files and connections.
LAST_SECONDS = 5.0


class AssignmentCallbacks:
    """The callbacks of one client, and their calls that are not over.

    With ``in_threads``, functions that aren't async run in threads.
    """

    def __init__(
        self,
        on_assigned: OnAssigned | None,
        on_revoked: OnRevoked | None,
        *,
        in_threads: bool,
    ) -> None:
        self.on_assigned, self.on_revoked = on_assigned, on_revoked
        self.is_leaving = False
        self.clock: Clock
        # The time for which the release of a shard waits for the callbacks.
        self.wait_seconds: float
        # Whether user code has records of a shard or, with ``waiting=True``, gets more.
        self.has_records: Callable[..., bool]
        self.thread = 0  # the thread of the client's event loop
        self._in_threads = in_threads
        self._threads: Threads | None = None
        # An error that was raised after the end of the iteration or of ``run()``.
        self.error: BaseException | None = None
        self._fail: Callable[[BaseException], bool]
        # The last calls for each shard, until they are over.
        self._last: dict[ShardKey, ShardCalls] = {}

    def connect(
        self,
        context: ClientContext,
        has_records: Callable[..., bool],
        fail: Callable[[BaseException], bool],
    ) -> None:
        """Set what knows user code's records, and what takes errors of callbacks.

        ``fail`` ends the iteration with an error. It returns False after the end.
        """
        self.clock = context.clock
        self.wait_seconds = context.config.drain_timeout_seconds
        self.has_records, self._fail = has_records, fail
        self.thread, self.is_leaving = threading.get_ident(), False

    def begin(self, owned: OwnedShard) -> ShardCalls:
        """Return the calls for a shard that was claimed."""
        calls = ShardCalls(self, owned, self._last.get(owned.key))
        self._last[owned.key] = calls
        return calls

    def ended(self, calls: ShardCalls) -> None:
        """Forget calls that are over."""
        if self._last.get(calls.owned.key) is calls:
            del self._last[calls.owned.key]

    def failed(self, calls: ShardCalls, name: str, error: BaseException) -> None:
        """Log an error of a callback, and end the iteration or ``run()`` with it."""
        source = calls.owned.source
        logger.error(
            "%s failed at %s %s: %r",
            name,
            source.stream,
            source.shard_id,
            error,
            extra=calls.owned.log_fields,
            exc_info=error,
        )
        if not self._fail(error):
            self.error = self.error or error

    def raise_error(self) -> None:
        """Raise the error that no iteration has raised, if there is one."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def works(self) -> list[InFlightWork]:
        """Return the calls that are running. Any thread may call this."""
        found = [calls.work() for calls in list(self._last.values())]
        return [work for work in found if work is not None]

    async def finish(self) -> None:
        """Make the calls that are due, since user code is over. Cancel late ones."""
        known = list(self._last.values())
        tasks = [task for calls in known if (task := calls.end_soon()) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_SECONDS)
            for calls in known:
                calls.cancel()
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def in_thread(self, function: Callable[..., Any]) -> Threads | None:
        """Return the threads that run a function; None for the event loop."""
        if is_async(function) or not self._in_threads:
            return None
        if self._threads is None:
            self._threads = Threads(MAX_THREADS, "kinesumer-callback")
        return self._threads


class ShardCalls:
    """The calls for one shard in one epoch.

    ``on_revoked`` is called once if ``on_assigned`` returned, and else never.
    """

    def __init__(
        self,
        callbacks: AssignmentCallbacks,
        owned: OwnedShard,
        former: ShardCalls | None,
    ) -> None:
        self.owned = owned
        self.is_over: bool = False
        source, position = owned.source, owned.row.position
        self._shard = AssignedShard(source.stream, source.fence.at(position))
        self._callbacks = callbacks
        # The calls for an earlier epoch of the shard, if they aren't over.
        self._former = former
        self._assigning: asyncio.Task[bool] | None = None
        self._revoking: asyncio.Task[bool] | None = None
        # Whether on_revoked needn't wait for user code, which is over.
        self._is_last = False
        # What is running now, since when, and its thread if it has one.
        self._name, self._since, self._thread = "", 0.0, 0

    async def assign(self) -> bool:
        """Call ``on_assigned``. Return whether the shard's records may be delivered.

        If the wait is cancelled, the call continues.
        """
        self._assigning = asyncio.create_task(self._assign())
        await asyncio.wait([self._assigning])
        return self._assigning.result()

    async def _assign(self) -> bool:
        if (former := self._former) is not None:
            self._name, self._since = "on_revoked", self._callbacks.clock.now()
            await former.owned.until(lambda: former.is_over)
            self._name, self._former = "", None
        if self.owned.revoked:
            return False
        return await self._call("on_assigned", self._callbacks.on_assigned)

    def revoke(self, reason: RevokeReason) -> asyncio.Task[bool]:
        """Begin to call ``on_revoked``, once user code has none of the records."""
        if self._revoking is None:
            self._revoking = asyncio.create_task(self._revoke(reason))
        return self._revoking

    async def _revoke(self, reason: RevokeReason) -> bool:
        try:
            if self._assigning is None:
                return False
            await asyncio.wait([self._assigning])
            if self._assigning.cancelled() or not self._assigning.result():
                return False
            await self.owned.until(lambda: self._is_last or not self._is_in_hand)
            revoked, reason = self._callbacks.on_revoked, self._reason(reason)
            return await self._call("on_revoked", revoked, reason)
        finally:
            self.is_over = True
            self.owned.note_change()
            self._callbacks.ended(self)

    async def release(
        self, reason: RevokeReason, seconds: float, *, waits_for_user: bool
    ) -> None:
        """Wait until ``on_revoked`` returned, the shard is lost or the time is over.

        Without ``waits_for_user``, call it even if user code has records.
        """
        self.revoke(reason)
        if not waits_for_user:
            self.end_soon()
        owned = self.owned
        if not await owned.until_within(lambda: self.is_over or owned.lost, seconds):
            if name := self._name:
                logger.warning(
                    "%s %s: %s didn't return within %g s; the shard is given up",
                    owned.source.stream,
                    owned.source.shard_id,
                    name,
                    seconds,
                    extra=owned.log_fields,
                )

    async def end(self) -> bool:
        """Call ``on_revoked`` when all records of a closed shard were handled.

        Return False if the call failed, or if the shard is given up before.
        """
        owned = self.owned
        await owned.until(lambda: owned.revoked or self._is_read_out)
        if owned.revoked:
            return False
        revoking = self.revoke("ended")
        await asyncio.wait([revoking])
        return revoking.result()

    def end_soon(self) -> asyncio.Task[bool] | None:
        """Don't wait for user code, which is over. Return the call that is due."""
        if self._former is not None:
            self._former.end_soon()
        self._is_last = True
        self.owned.note_change()
        return None if self.is_over else self._revoking

    def cancel(self) -> None:
        """Cancel the calls that aren't over."""
        if self._former is not None:
            self._former.cancel()
        for task in (self._assigning, self._revoking):
            if task is not None and not task.done():
                task.cancel()

    def work(self) -> InFlightWork | None:
        """Return the running call, or None. Any thread may call this."""
        name, since, thread = self._name, self._since, self._thread
        if not name:
            return None
        what = f"{name} at {self._shard.stream} {self._shard.shard_id}"
        if thread:
            return InFlightWork(since, what, lambda: thread_stack(thread))
        task, loop = self._revoking or self._assigning, self._callbacks.thread
        return InFlightWork(since, what, lambda: task_stack(task, loop))

    @property
    def _is_in_hand(self) -> bool:
        owned, has_records = self.owned, self._callbacks.has_records
        return not owned.is_idle and has_records(owned, waiting=False)

    @property
    def _is_read_out(self) -> bool:
        """Return whether user code got all records, and handled them."""
        owned, has_records = self.owned, self._callbacks.has_records
        if owned.is_finished:
            return True
        return owned.is_taken and not has_records(owned, waiting=True)

    def _reason(self, reason: RevokeReason) -> RevokeReason:
        """Return the reason at the time of the call."""
        owned, now = self.owned, self._callbacks.clock.now()
        # Once the lease has run out, other clients may claim the shard. Those of a
        # closed shard call on_revoked again.
        if owned.lost or (reason != "ended" and not owned.lease.permits(now)):
            return "lost"
        if owned.seeked:
            return "seeked"
        if reason == "moved" and self._callbacks.is_leaving:
            return "closed"
        return reason

    async def _call(
        self, name: str, function: Callable[..., Any] | None, *arguments: object
    ) -> bool:
        """Call user code with the shard. Report its error. Return whether it returned.

        Without a function, nothing is called, which counts as a return.
        """
        if function is None:
            return True
        self._since, self._name = self._callbacks.clock.now(), name
        try:
            await self._waited(function, *arguments)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            error = KinesumerError(
                f"{name} was cancelled by what it awaited: let it catch that"
            )
            self._callbacks.failed(self, name, error)
        except GeneratorExit:
            raise
        except BaseException as error:  # even SystemExit must not end the event loop
            self._callbacks.failed(self, name, error)
        else:
            return True
        finally:
            self._name, self._thread = "", 0
        return False

    async def _waited(self, function: Callable[..., Any], *arguments: object) -> None:
        threads = self._callbacks.in_thread(function)
        if threads is None:
            result = function(self._shard, *arguments)
        else:
            result = await threads.call(partial(self._run, function, *arguments))
        if inspect.isawaitable(result):
            await result

    def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call user code in a thread."""
        self._thread = threading.get_ident()
        return function(self._shard, *arguments)


def read_callbacks(
    on_assigned: OnAssigned | None, on_revoked: OnRevoked | None, *, in_threads: bool
) -> AssignmentCallbacks | None:
    """Return the callbacks; None if there are none. Raises ConfigurationError."""
    if on_assigned is None and on_revoked is None:
        return None
    given = {"on_assigned": on_assigned, "on_revoked": on_revoked}
    for name, function in given.items():
        if function is not None:
            require_function(name, function)
    return AssignmentCallbacks(on_assigned, on_revoked, in_threads=in_threads)
