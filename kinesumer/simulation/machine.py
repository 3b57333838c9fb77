"""A simulated machine: a process with its own clocks and callbacks."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

EPOCH = 1_800_000_000.0
"""The services' wall clock at the start of a simulation."""


class Scheduler(Protocol):
    """The event loop, as far as machines and what runs on them use it."""

    real: float
    """The true time, in seconds since the simulation began."""

    def at_real(self, when: float, callback: Callable[..., Any], *args: Any) -> object:
        """Call ``callback`` at a true time."""

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> object:
        """Call ``callback`` on the context's machine, when that machine runs."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Start a task on the context's machine."""

    def make_runnable(self, machine: Machine) -> None:
        """Let a machine run its callbacks again."""

    def make_idle(self, machine: Machine) -> None:
        """Run nothing of a machine until it is made runnable."""

    def abandon_tasks(self, machine: Machine) -> None:
        """Keep a killed machine's tasks from running their cleanup code."""


class Machine:
    """A process on its own computer, with clocks and a queue of callbacks."""

    def __init__(self, loop: Scheduler, name: str, rate: float = 1.0) -> None:
        self.loop = loop
        self.name = name
        self.rate = rate
        """Seconds that its clocks count in one real second."""
        self._ahead = 0.0
        """Seconds that its clocks gained at earlier rates."""
        self.wall_offset = 0.0
        self.alive = True
        self.queue: deque[Handle] = deque()
        self.is_runnable = False
        self.frozen_until = 0.0
        self.suspended = 0.0
        """Seconds that timers missed while the computer slept."""
        self.steps_left = -1
        """Callbacks to run before ``after_steps_action`` (-1: none is set)."""
        self.after_steps_action: Callable[[], None] | None = None
        self.threads: list[Machine] = []
        """Other threads of its process, with the same clocks and the same end."""

    def thread(self, name: str) -> Machine:
        """Return another thread of the same process, with an event loop of its own."""
        made = Machine(self.loop, f"{self.name}/{name}", self.rate)
        self.threads.append(made)
        return made

    def now(self) -> float:
        """Return seconds on a clock that runs through suspend (ports.Clock)."""
        return self._ahead + self.loop.real * self.rate

    def wall(self) -> float:
        """Return what this computer believes the time to be (ports.Clock)."""
        return EPOCH + self.now() + self.wall_offset

    def timers_now(self) -> float:
        """Return the time of asyncio's timers, which stands still in suspend."""
        return self._ahead + self.loop.real * self.rate - self.suspended

    def set_rate(self, rate: float) -> None:
        """Let the clocks of this thread run faster or slower from now on."""
        self._ahead += self.loop.real * (self.rate - rate)
        self.rate = rate

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Run nothing for a time; with ``suspend``, timers stop too."""
        self.block(seconds, suspend=suspend)
        for thread in self.threads:
            thread.block(seconds, suspend=suspend)

    def block(self, seconds: float, *, suspend: bool = False) -> None:
        """Run nothing on this thread for a time."""
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

        The task goes on before everything that has become due by then.
        """
        place = len(self.queue)  # where the task's next step goes
        self.block(seconds)
        self.loop.at_real(self.loop.real, self._go_first, place)
        yield

    def _go_first(self, place: int) -> None:
        if place < len(self.queue):
            step = self.queue[place]
            del self.queue[place]
            self.queue.appendleft(step)

    def is_blocked_past(self, due: float) -> bool:
        """Return whether it is blocked until after a timer is due."""
        late = self.frozen_until - self.loop.real
        return late > 0 and self.timers_now() + late * self.rate > due

    def after_steps(self, steps: int, then: Callable[[], None]) -> None:
        """Call ``then`` after this many more callbacks."""
        self.steps_left, self.after_steps_action = steps, then

    def kill(self) -> None:
        """End at once: none of its code runs again, not even ``finally`` blocks."""
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


class Handle(asyncio.TimerHandle):
    """A callback to run on a machine, now or at a time."""

    __slots__ = ("args", "callback", "context", "due", "is_cancelled", "machine")

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context,
        machine: Machine,
    ) -> None:
        # The parent's fields stay unset: nothing of the parent is used but its type.
        self.callback = callback
        self.args = args
        self.context = context
        self.machine = machine
        self.is_cancelled = False
        self.due = 0.0
        """When to run it, on its machine's timers."""

    def cancel(self) -> None:
        """Never run the callback."""
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the time it is due, on its machine's timers."""
        return self.due

    def __repr__(self) -> str:
        return f"<Handle {self.callback!r} on {self.machine.name}>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _nothing() -> None:
    pass
