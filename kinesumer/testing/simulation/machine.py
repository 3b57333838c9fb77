"""A simulated machine: a process with its own clocks, callbacks and network link."""

from __future__ import annotations

import asyncio
import heapq
import math
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from kinesumer.aws import polling
from kinesumer.errors import SlowAnswerError
from kinesumer.runtime.tasks import timeout

T = TypeVar("T")

# The services' wall clock at the start of a simulation.
EPOCH = 1_800_000_000.0


class Scheduler(asyncio.BaseEventLoop):
    """The part of the event loop that machines use."""

    def __init__(self) -> None:
        super().__init__()
        self.real: float = 0.0  # the true time, in seconds since the simulation began
        self.services: Machine = Machine(self, "services")
        self.tasks_made: count[int] = count(1)
        self._runnable: list[Machine] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._ties = count()
        self._abandoned: list[Task[Any]] = []
        self._context = copy_context()
        self._context.run(MACHINE.set, self.services)

    def at_real(self, when: float, callback: Callable[..., Any], *args: Any) -> Handle:
        """Run a callback of the simulated services at a given true time."""
        handle = Handle(callback, args, self._context, self.services, when)
        self._schedule(handle, when)
        return handle

    def _schedule(self, handle: Handle, when: float) -> None:
        heapq.heappush(self._timers, (when, next(self._ties), handle))

    def machine_of(self, context: Context | None) -> Machine:
        """Return the machine that a context names, by default the current context."""
        if context is None:
            return MACHINE.get(self.services)
        return context.get(MACHINE, self.services)

    def make_runnable(self, machine: Machine) -> None:
        """Let a machine run its callbacks again."""
        if machine.queue and not machine.is_runnable:
            machine.is_runnable = True
            self._runnable.append(machine)

    def make_idle(self, machine: Machine) -> None:
        """Keep a machine's callbacks from running until ``make_runnable()``."""
        if machine.is_runnable:
            machine.is_runnable = False
            self._runnable.remove(machine)

    def abandon_tasks(self, machine: Machine) -> None:
        """Keep a killed machine's tasks from running their cleanup code."""
        for task in asyncio.all_tasks(self):
            if isinstance(task, Task) and task.machine is machine:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._abandoned.append(task)


class Task(asyncio.Task[T]):
    """A task that knows its machine. Its hash is the same in every run."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        loop: Scheduler,
        name: str | None,
        context: Context | None,
    ) -> None:
        self.number: int = next(loop.tasks_made)
        self.machine: Machine = loop.machine_of(context)
        self.coro = coro
        super().__init__(coro, loop=loop, name=name, context=context)

    # asyncio.TaskGroup keeps its tasks in a set, whose order depends on their hashes.
    def __hash__(self) -> int:
        return self.number


class Machine:
    """A process, or a thread of one, with its own clocks and queue of callbacks."""

    def __init__(self, loop: Scheduler, name: str, rate: float = 1.0) -> None:
        self.loop = loop
        self.name = name
        # Seconds that the machine's clocks count in one true second.
        self.rate: float = rate
        # Seconds by which the clocks are ahead of ``real * rate``, by earlier rates.
        self._ahead = 0.0
        self.wall_offset: float = 0.0
        self.alive: bool = True
        self.queue: deque[Handle] = deque()
        self.is_runnable = False
        self.frozen_until: float = 0.0
        # Seconds by which timers are behind, since they stand still in suspend.
        self.suspended: float = 0.0
        # The number of callbacks to run before ``after_steps_action``, or -1.
        self.steps_left: int = -1
        self.after_steps_action: Callable[[], None] | None = None
        # Other threads of the process. They share its clocks and end with it.
        self.threads: list[Machine] = []

    def thread(self, name: str) -> Machine:
        """Return another thread of the same process, with callbacks of its own."""
        thread = Machine(self.loop, f"{self.name}/{name}", self.rate)
        self.threads.append(thread)
        return thread

    def now(self) -> float:
        """Return the time of a clock that also runs during suspend (ports.Clock)."""
        return self._ahead + self.loop.real * self.rate

    def wall(self) -> float:
        """Return this computer's wall-clock time, which may be wrong (ports.Clock)."""
        return EPOCH + self.now() + self.wall_offset

    def timers_now(self) -> float:
        """Return the time of asyncio's timers, which stop during suspend."""
        return self.now() - self.suspended

    def set_rate(self, rate: float) -> None:
        """Let the clocks of this thread run faster or slower from now on."""
        self._ahead += self.loop.real * (self.rate - rate)
        self.rate = rate

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Freeze the process for a time. If ``suspend`` is true, timers stop too."""
        for thread in (self, *self.threads):
            thread.block(seconds, suspend=suspend)

    def block(self, seconds: float, *, suspend: bool = False) -> None:
        """Block this thread for a time."""
        until = self.loop.real + seconds
        if until <= self.frozen_until or not self.alive:
            return
        if suspend:
            asleep = until - max(self.frozen_until, self.loop.real)
            self.suspended += asleep * self.rate
        self.frozen_until = until
        self.loop.make_idle(self)
        self.loop.at_real(until, self._thaw)

    @types.coroutine
    def busy(self, seconds: float) -> Generator[None, None, None]:
        """Let the current task block this thread, so that no other task runs.

        The task continues before callbacks that become due in the meantime.
        """
        index = len(self.queue)  # where the task's next step will be queued
        self.block(seconds)
        self.loop.at_real(self.loop.real, self._go_first, index)
        yield

    def _go_first(self, index: int) -> None:
        if index < len(self.queue):
            step = self.queue[index]
            del self.queue[index]
            self.queue.appendleft(step)

    def is_blocked_past(self, due: float) -> bool:
        """Return True if the thread will still be blocked when a timer is due."""
        late = self.frozen_until - self.loop.real
        return late > 0 and self.timers_now() + late * self.rate > due

    def after_steps(self, steps: int, then: Callable[[], None]) -> None:
        """Call ``then`` when ``steps`` more callbacks have run."""
        self.steps_left, self.after_steps_action = steps, then

    def kill(self) -> None:
        """End the process at once, without running even its ``finally`` blocks."""
        for thread in self.threads:
            thread.kill()
        self.alive = False
        self.queue.clear()
        self.loop.make_idle(self)
        self.loop.abandon_tasks(self)

    def _thaw(self) -> None:
        if self.alive and self.loop.real >= self.frozen_until:
            self.loop.make_runnable(self)


MACHINE: ContextVar[Machine] = ContextVar("MACHINE")


@dataclass(eq=False, repr=False, slots=True)
class Handle:
    """A callback to run on a machine, at once or at a given time."""

    callback: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context
    machine: Machine
    due: float = 0.0  # the time at which the callback is due, on its machine's timers
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the callback, so that it never runs."""
        self.is_cancelled = True
        self.callback, self.args = (lambda: None), ()

    def __repr__(self) -> str:
        return f"<Handle {self.callback!r} on {self.machine.name}>"


# --- the link -------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Transfer:
    """An answer on its way over the link."""

    size: int
    arrived: Callable[[], None]
    left_bytes: float


class SharedLink:
    """Carries several answers at once. Each gets an equal share of the bandwidth.

    The bandwidth is unlimited if ``bytes_per_second`` is 0.
    """

    def __init__(self, loop: Scheduler, bytes_per_second: float = 0.0) -> None:
        self.bytes_per_second: float = bytes_per_second
        # A function to call when a transfer starts.
        self.changed: Callable[[], None] = lambda: None
        self._loop = loop
        self._under_way: list[Transfer] = []
        self._counted_at = 0.0
        self._next_arrival: Handle | None = None

    @property
    def bytes_in_flight(self) -> int:
        """The total size of the answers in transit."""
        return sum(transfer.size for transfer in self._under_way)

    async def arrival(self, size: int) -> None:
        """Wait until an answer has arrived. Raises SlowAnswerError if it is late."""
        future: asyncio.Future[None] = self._loop.create_future()
        transfer = self.carry(size, partial(_complete, future))
        try:
            async with timeout(polling.ANSWER_SECONDS):
                await future
        except TimeoutError:
            raise SlowAnswerError("timed out while the answer arrived") from None
        finally:
            self.drop(transfer)

    def carry(self, size: int, arrived: Callable[[], None]) -> Transfer:
        """Start an answer's transfer. Call ``arrived`` when it is complete."""
        self._count_down()
        transfer = Transfer(size, arrived, size)
        self._under_way.append(transfer)
        self._plan()
        self.changed()
        return transfer

    def drop(self, transfer: Transfer) -> None:
        """End a transfer, if it isn't over, since the client closes the connection."""
        if transfer in self._under_way:
            self._count_down()
            self._under_way.remove(transfer)
            self._plan()

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the bandwidth. 0 means no limit."""
        self._count_down()
        self.bytes_per_second = bytes_per_second
        self._plan()

    def _count_down(self) -> None:
        """Subtract what each transfer has received since the last call."""
        seconds, self._counted_at = self._loop.real - self._counted_at, self._loop.real
        for transfer in self._under_way:
            share = self.bytes_per_second / len(self._under_way)
            transfer.left_bytes -= seconds * share

    def _plan(self) -> None:
        """Set a timer for the next arrival, in place of the former timer."""
        if self._next_arrival is not None:
            self._next_arrival.cancel()
        if self._under_way:
            first = min(self._under_way, key=lambda transfer: transfer.left_bytes)
            left_bytes = max(0.0, first.left_bytes) * len(self._under_way)
            when = self._loop.real + left_bytes / (self.bytes_per_second or math.inf)
            self._next_arrival = self._loop.at_real(when, self._arrive, first)

    def _arrive(self, transfer: Transfer) -> None:
        self.drop(transfer)
        transfer.arrived()


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
