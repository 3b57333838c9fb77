"""Brings records through user code: calls, calls again, finds the record that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.handlers.failure_log import log_first_failure
from kinesumer.handlers.invokers import NotAwaitedError, NoThreadError
from kinesumer.handlers.retry import Failure, RetryPolicy, call_again

if TYPE_CHECKING:
    from random import Random

    from kinesumer.handlers.failure_policy import FailurePolicy
    from kinesumer.handlers.invokers import Invoker
    from kinesumer.handlers.permits import Gate
    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.handlers.tracing import Tracing


class HandlerExecutor:
    """Handles items: any number of them at a time."""

    def __init__(
        self,
        invoker: Invoker,
        gate: Gate,
        retries: RetryPolicy,
        failure_policy: FailurePolicy,
        random: Random,
        tracing: Tracing,
        *,
        one_by_one: bool,
    ) -> None:
        self._invoker = invoker
        self._gate = gate
        self._retries = retries
        self._failure_policy = failure_policy
        self._random = random
        self._tracing = tracing
        self._one_by_one = one_by_one
        """User code gets each record by itself: what failed is the next one."""
        self._kinds_logged: set[type[BaseException]] = set()
        """Types of errors whose traceback was logged: thousands may be alike."""

    async def handle(self, item: WorkItem) -> None:
        """Handle all of an item. Raises ShardStopped, or what ends ``run()``."""
        end = len(item.records)
        while item.done < end:
            error = await self._call(item, end)
            if error is not None:
                stop = item.done + 1 if self._one_by_one else end
                await self._resolve(item, stop, Failure(error, 1))

    async def _resolve(self, item: WorkItem, stop: int, failure: Failure) -> None:
        """Call again with what has failed as a whole; if that doesn't help, part it."""
        kind = type(failure.error)
        is_new = kind not in self._kinds_logged
        self._kinds_logged.add(kind)
        log_first_failure(item, stop, failure, with_traceback=is_new)
        last = await call_again(
            self._retries,
            failure,
            lambda: self._call(item, stop),
            item.queue.sleep,
            self._random,
        )
        if last is None:
            return
        if stop - item.done > 1:
            await self._bisect(item, stop, last)
        else:
            item.failure = last
            await self._failure_policy(item, last)
            item.done += 1
            item.failure = None

    async def _bisect(self, item: WorkItem, stop: int, failure: Failure) -> None:
        """Find the records that fail among some: halves have one try each."""
        middle = (item.done + stop) // 2
        for end in (middle, stop):
            error = await self._call(item, end)
            if error is None:
                continue
            found = Failure(error, failure.calls + 1)
            if end - item.done > 1:
                await self._bisect(item, end, found)
            else:
                await self._resolve(item, end, found)

    async def _call(self, item: WorkItem, stop: int) -> BaseException | None:
        """Give user code the records up to ``stop``; return what it raised."""
        while item.done < stop:
            await self._gate(item)
            try:
                with self._tracing.span(item, stop):
                    await self._invoker(item, stop)
            except (NotAwaitedError, NoThreadError):
                raise
            except Exception as error:
                self._tracing.failed(item)
                return error
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                return error  # something that user code waited for was cancelled
            finally:
                item.busy_since, item.thread = None, 0
        return None
