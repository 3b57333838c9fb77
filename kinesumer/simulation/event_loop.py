"""An event loop in virtual time, whose machines can be frozen or killed.

Time jumps to the next timer. Whatever is ready runs in an order drawn from a seeded
generator, machine by machine: within one machine callbacks keep their order, as asyncio
promises. Each callback belongs to the machine named in its context, so that a machine
can be frozen (SIGSTOP), suspended or killed (SIGKILL) as a whole.
"""

from __future__ import annotations

import asyncio
import heapq
from contextvars import copy_context
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kinesumer.simulation.machine import MACHINE, Handle, Machine

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

T = TypeVar("T")

SPIN_LIMIT = 100_000
"""More callbacks than this at one time mean an endless loop."""


TICK = 1e-6
"""Tolerance and minimum length of timers, since clocks are sums of floats."""


class SpinningError(Exception):
    """Callbacks run in an endless loop, and time stands still."""


class Task(asyncio.Task[T]):
    """A task with its machine, and a hash that is the same in every run."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        loop: VirtualLoop,
        name: str | None,
        context: Context | None,
    ) -> None:
        self.number = loop.next_task()
        self.machine = loop.machine_of(context)
        self.coro = coro
        super().__init__(coro, loop=loop, name=name, context=context)

    # The order of sets of tasks, as in TaskGroup, depends on their hashes.
    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. Only it and the checker know ``real``, the true time."""

    _running = False

    def __init__(self, random: random.Random) -> None:
        super().__init__()
        self.real = 0.0
        self.steps = 0
        self.halted: BaseException | None = None
        """If this is set, the run ends with it."""
        self.random = random
        self.failures: list[dict[str, Any]] = []
        """Contexts of exceptions that no code handled."""
        self.services = Machine(self, "services")
        self._runnable: list[Machine] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._ties = count()
        self._tasks = count(1)
        self._abandoned: list[Task[Any]] = []
        self.services_context = self._context = copy_context()
        self._context.run(MACHINE.set, self.services)
        self._current = self.services

    # --- running ---

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the services' machine until it ends."""
        before = asyncio._get_running_loop()
        self._running = True
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main, context=self._context)
            self._run_ready()
            while not task.done() and self.halted is None:
                self._advance()
                self._run_ready()
            if self.halted is not None:
                raise self.halted
            return task.result()
        finally:
            self._end_all()
            self._running = False
            asyncio._set_running_loop(before)

    def _advance(self) -> None:
        timers = self._timers
        if not timers:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        when, _, handle = heapq.heappop(timers)
        if when > self.real:
            self.real = when
        self._fire(handle)
        while timers and timers[0][0] <= self.real:
            self._fire(heapq.heappop(timers)[2])

    def _fire(self, handle: Handle) -> None:
        machine = handle.machine
        if handle.is_cancelled or not machine.alive:
            return
        early = handle.due - machine.timers_now()
        if early > TICK:  # it was suspended, or its clocks run slower now
            self._schedule(handle, self.real + early / machine.rate)
        else:
            self._enqueue(handle, machine)

    def _run_ready(self) -> None:
        ready, draw, ran = self._runnable, self.random.random, 0
        while ready:
            many = len(ready)
            place = int(draw() * many) if many > 1 else 0
            machine = ready[place]
            queue = machine.queue
            handle = queue.popleft()
            if not queue:
                ready[place] = ready[-1]
                ready.pop()
                machine.is_runnable = False
            self._current = machine
            handle.context.run(handle.callback, *handle.args)
            self._current = self.services
            ran += 1
            if machine.steps_left >= 0:
                self._count_down(machine)
            if ran > SPIN_LIMIT:
                raise SpinningError(f"spinning at {self.real:.3f} s: {handle!r}")
        self.steps += ran

    def _count_down(self, machine: Machine) -> None:
        machine.steps_left -= 1
        if machine.steps_left < 0 and machine.after_steps_action is not None:
            then, machine.after_steps_action = machine.after_steps_action, None
            then()

    def _enqueue(self, handle: Handle, machine: Machine) -> None:
        machine.queue.append(handle)
        if not machine.is_runnable and self.real >= machine.frozen_until:
            machine.is_runnable = True
            self._runnable.append(machine)

    def make_runnable(self, machine: Machine) -> None:
        """Let a machine run its callbacks again."""
        if machine.queue and not machine.is_runnable:
            machine.is_runnable = True
            self._runnable.append(machine)

    def make_idle(self, machine: Machine) -> None:
        """Run nothing of a machine until it is made runnable."""
        if machine.is_runnable:
            machine.is_runnable = False
            self._runnable.remove(machine)

    # --- what asyncio asks of a loop ---

    def machine_of(self, context: Context | None) -> Machine:
        """Return the machine that a context (None: the current one) belongs to."""
        if context is None:
            return MACHINE.get(self.services)
        return context.get(MACHINE, self.services)

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback on its context's machine when its turn comes."""
        if context is None:
            context = copy_context()
        machine = context.get(MACHINE, self.services)
        handle = Handle(callback, args, context, machine)
        if machine.alive and not self._closed:
            machine.queue.append(handle)
            if not machine.is_runnable and self.real >= machine.frozen_until:
                machine.is_runnable = True
                self._runnable.append(machine)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback after a delay on its machine's clock."""
        if context is None:
            context = copy_context()
        machine = context.get(MACHINE, self.services)
        handle = Handle(callback, args, context, machine)
        handle.due = machine.timers_now() + delay
        # A shorter delay may not change the float: the timer would never be due.
        self._schedule(handle, self.real + max(TICK, delay / machine.rate))
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback at a time on its machine's timers."""
        delay = when - self.machine_of(context).timers_now()
        return self.call_later(max(0.0, delay), callback, *args, context=context)

    def at_real(self, when: float, callback: Callable[..., Any], *args: Any) -> Handle:
        """Run a callback of the services at a real time."""
        handle = Handle(callback, args, self._context, self.services)
        handle.due = when
        self._schedule(handle, when)
        return handle

    def _schedule(self, handle: Handle, when: float) -> None:
        heapq.heappush(self._timers, (when, next(self._ties), handle))

    @property
    def current(self) -> Machine:
        """The machine whose callback is running."""
        return self._current

    def time(self) -> float:
        """Return the time of the current machine's timers."""
        return self._current.timers_now()

    def next_task(self) -> int:
        """Return a number for a new task."""
        return next(self._tasks)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> Task[T]:
        """Start a task on the machine of its context."""
        return Task(coro, loop=self, name=str(name) if name else None, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_running(self) -> bool:
        """Return whether ``run`` is running."""
        return self._running

    def is_closed(self) -> bool:
        """Return True unless ``run`` is running, since the loop holds no resources."""
        return not self._running

    def run_in_executor(
        self, executor: object, func: object, *args: object
    ) -> NoReturn:
        """Raise NotImplementedError, since threads don't run in virtual time."""
        raise NotImplementedError("no threads in virtual time")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an exception that no code handled."""
        self.failures.append(context)

    call_exception_handler = default_exception_handler

    # --- machines and their end ---

    def machine(self, name: str, rate: float = 1.0) -> Machine:
        """Return a new machine."""
        return Machine(self, name, rate)

    def spawn(self, machine: Machine, main: Coroutine[Any, Any, T]) -> Task[T]:
        """Start a task on a machine."""
        context = copy_context()
        context.run(MACHINE.set, machine)
        return self.create_task(main, context=context)

    def abandon_tasks(self, machine: Machine) -> None:
        """Keep a killed machine's tasks from running their cleanup code."""
        for task in asyncio.all_tasks(self):
            if isinstance(task, Task) and task.machine is machine:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._abandoned.append(task)

    def _end_all(self) -> None:
        self._closed = True
        self._runnable.clear()
        self._timers.clear()
        for task in sorted(asyncio.all_tasks(self), key=hash):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if isinstance(task, Task):
                self._abandoned.append(task)
        for task in self._abandoned:
            _close(task.coro)
        self._abandoned.clear()


def _close(coro: Any) -> None:
    """Close a coroutine, and ignore the errors of its cleanup code."""
    for _ in range(50):
        try:
            coro.close()
        except RuntimeError as error:
            if "ignored GeneratorExit" not in str(error):
                return
        except BaseException:
            return
        else:
            return
