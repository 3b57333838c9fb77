"""Brings records through user code: calls, calls again, finds the record that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.handlers.failure_log import log_first_failure
from kinesumer.handlers.invokers import NotAwaitedError, NoThreadError
from kinesumer.handlers.retry import Failure, RetryPolicy, retried
from kinesumer.handlers.work_item import Stoppage

if TYPE_CHECKING:
    from random import Random

    from kinesumer.handlers.failure_policy import LastResort
    from kinesumer.handlers.invokers import Caller
    from kinesumer.handlers.permits import Breath
    from kinesumer.handlers.tracing import Tracing
    from kinesumer.handlers.work_item import Stint
    from kinesumer.ports import Clock

PAUSE_SECONDS = 0.05
"""How often a lapsed lease is looked at."""


class Gate:
    """Lets user code begin with something when that is permitted."""

    def __init__(self, clock: Clock, breath: Breath) -> None:
        self._clock, self._breath = clock, breath

    async def __call__(self, stint: Stint) -> None:
        """Wait for one's turn, and while the lease has lapsed. Raises Stoppage."""
        lane, lease = stint.lane, stint.lane.holding.lease
        while True:
            await self._breath.draw()
            if lane.is_over:
                raise Stoppage
            if lease.permits(self._clock.now()):
                return
            await lane.sleep(PAUSE_SECONDS)


class Worker:
    """Handles stints: any number of them at a time."""

    def __init__(
        self,
        caller: Caller,
        gate: Gate,
        retries: RetryPolicy,
        last_resort: LastResort,
        random: Random,
        tracing: Tracing,
        *,
        one_by_one: bool,
    ) -> None:
        self._caller = caller
        self._gate = gate
        self._retries = retries
        self._last_resort = last_resort
        self._random = random
        self._tracing = tracing
        self._one_by_one = one_by_one
        """User code gets each record by itself: what failed is the next one."""
        self._kinds_logged: set[type[BaseException]] = set()
        """Types of errors whose traceback was logged: thousands may be alike."""

    async def handle(self, stint: Stint) -> None:
        """Handle all of a stint. Raises Stoppage, or what ends ``run()``."""
        end = len(stint.records)
        while stint.done < end:
            error = await self._call(stint, end)
            if error is not None:
                stop = stint.done + 1 if self._one_by_one else end
                await self._resolve(stint, stop, Failure(error, 1))

    async def _resolve(self, stint: Stint, stop: int, failure: Failure) -> None:
        """Call again with what has failed as a whole; if that doesn't help, part it."""
        kind = type(failure.error)
        is_new = kind not in self._kinds_logged
        self._kinds_logged.add(kind)
        log_first_failure(stint, stop, failure, with_traceback=is_new)
        last = await retried(
            self._retries,
            failure,
            lambda: self._call(stint, stop),
            stint.lane.sleep,
            self._random,
        )
        if last is None:
            return
        if stop - stint.done > 1:
            await self._halve(stint, stop, last)
        else:
            stint.failure = last
            await self._last_resort(stint, last)
            stint.done += 1
            stint.failure = None

    async def _halve(self, stint: Stint, stop: int, failure: Failure) -> None:
        """Find the records that fail among some: halves have one try each."""
        middle = (stint.done + stop) // 2
        for end in (middle, stop):
            error = await self._call(stint, end)
            if error is None:
                continue
            found = Failure(error, failure.calls + 1)
            if end - stint.done > 1:
                await self._halve(stint, end, found)
            else:
                await self._resolve(stint, end, found)

    async def _call(self, stint: Stint, stop: int) -> BaseException | None:
        """Give user code the records up to ``stop``; return what it raised."""
        while stint.done < stop:
            await self._gate(stint)
            try:
                with self._tracing.span(stint, stop):
                    await self._caller(stint, stop)
            except (NotAwaitedError, NoThreadError):
                raise
            except Exception as error:
                self._tracing.failed(stint)
                return error
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                return error  # something that user code waited for was cancelled
            finally:
                stint.since, stint.thread = None, 0
        return None
