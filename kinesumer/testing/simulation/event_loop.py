"""An event loop in virtual time, which runs the callbacks of simulated machines.

If no callback is ready, time jumps to the next timer. If several machines have ready
callbacks, a seeded random generator chooses the machine that runs its next one. The
context of a callback names its machine. So a machine can be frozen (SIGSTOP), suspended
or killed (SIGKILL) as a whole.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar

from kinesumer.testing.kinesis.limits import TICK
from kinesumer.testing.simulation.machine import (
    MACHINE,
    Handle,
    Machine,
    Scheduler,
    Task,
)

T = TypeVar("T")

# If more callbacks than this run at one virtual time, there must be an endless loop.
SPIN_LIMIT = 100_000


class SpinningError(Exception):
    """Callbacks run in an endless loop, so that virtual time stands still."""


class VirtualLoop(Scheduler):
    """The event loop. ``real`` is the true time, which simulated clients don't know."""

    _running = False

    def __init__(self, random: random.Random) -> None:
        super().__init__()
        self.steps: int = 0
        # An exception that ends the run. ``run()`` raises it.
        self.halted: BaseException | None = None
        self.random = random
        # What asyncio reported about each exception that no code handled.
        self.failures: list[dict[str, Any]] = []
        self.current: Machine = self.services  # the machine whose callback is running

    # --- running ---

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the machine of the simulated services until it ends."""
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
        if early > TICK:  # not due: the machine slept, or its clock has slowed
            self._schedule(handle, self.real + early / machine.rate)
        else:
            self._enqueue(handle, machine)

    def _run_ready(self) -> None:
        ready, draw, ran = self._runnable, self.random.random, 0
        while ready:
            many = len(ready)
            index = int(draw() * many) if many > 1 else 0
            machine = ready[index]
            queue = machine.queue
            handle = queue.popleft()
            if not queue:
                # Remove the machine in constant time. The order doesn't matter.
                ready[index] = ready[-1]
                ready.pop()
                machine.is_runnable = False
            self.current = machine
            handle.context.run(handle.callback, *handle.args)
            self.current = self.services
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

    # --- what asyncio asks of a loop ---

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Put a callback into the queue of its context's machine."""
        if context is None:
            context = copy_context()
        machine = context.get(MACHINE, self.services)
        handle = Handle(callback, args, context, machine)
        if machine.alive and not self._closed:
            self._enqueue(handle, machine)
        return handle

    # All machines share this loop's thread.
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
        due = machine.timers_now() + delay
        handle = Handle(callback, args, context, machine, due)
        # A very short delay may not change the float, so that time would stand still.
        self._schedule(handle, self.real + max(TICK, delay / machine.rate))
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback at a given time of its machine's timers."""
        delay = when - self.machine_of(context).timers_now()
        return self.call_later(max(0.0, delay), callback, *args, context=context)

    def time(self) -> float:
        """Return the time of the current machine's timers."""
        return self.current.timers_now()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> Task[T]:
        """Start a task on the machine of its context."""
        return Task(coro, loop=self, name=str(name) if name else None, context=context)

    def is_running(self) -> bool:
        """Return True while ``run`` is running."""
        return self._running

    def is_closed(self) -> bool:
        """Return True unless ``run`` is running, since the loop holds no resources."""
        return not self._running

    def run_in_executor(
        self, executor: object, func: object, *args: object
    ) -> NoReturn:
        """Raise NotImplementedError, since threads don't run in virtual time."""
        raise NotImplementedError("threads don't run in virtual time")

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

    def _end_all(self) -> None:
        self._closed = True
        self._runnable.clear()
        self._timers.clear()
        # A set of tasks has no fixed order. Sort them by number, which is their hash.
        for task in sorted(asyncio.all_tasks(self), key=hash):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if isinstance(task, Task):
                self._abandoned.append(task)
        for task in self._abandoned:
            _close(task.coro)
        self._abandoned.clear()


def _close(coro: Any) -> None:
    """Close a coroutine and what it awaits, and ignore the errors of cleanup code.

    The innermost is closed first. Otherwise its error would end the others, although
    its own cleanup code still awaits something.
    """
    for _ in range(50):
        chain, inner = [coro], coro.cr_await
        while hasattr(inner, "cr_await"):
            chain.append(inner)
            inner = inner.cr_await
        with suppress(BaseException):
            for each in reversed(chain):
                each.close()
            return
