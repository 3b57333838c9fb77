"""Run the processes of an application as ``supervision`` decides."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kinesumer.ops.group.observation import ClientHealth
from kinesumer.ops.supervisor.metrics import Family
from kinesumer.ops.supervisor.reports import SILENT_SECONDS, Report, read_report
from kinesumer.ops.supervisor.source_files import changes
from kinesumer.ops.supervisor.supervision import (
    Action,
    Ended,
    Phase,
    Running,
    Send,
    Start,
    Supervision,
    Waiting,
)
from kinesumer.ports import Clock
from kinesumer.runtime.stop_signals import StopSignals
from kinesumer.runtime.tasks import cancel_and_wait

log = logging.getLogger("kinesumer.run")
# A report has the metrics of a process: some hundred kilobytes in a large application.
MAX_REPORT_BYTES = 16 * 1024 * 1024
# The variable that tells a process its number.
PROCESS_VARIABLE = "KINESUMER_PROCESS"

# Returns the command of a process, by its number and the descriptor that it reports to.
CommandOf = Callable[[int, int], Sequence[str]]


class Exited(NamedTuple):
    """A process has ended."""

    process: int
    status: int


class Stop(NamedTuple):
    """The supervisor got a signal."""

    is_first: bool


class Changed(NamedTuple):
    """Source files have changed."""

    paths: Sequence[Path]


Event = Exited | Stop | Changed


class Child(NamedTuple):
    """A running process."""

    process: Process
    # Reads its reports.
    reading: asyncio.Task[None]


class Supervisor:
    """Starts processes, passes events to ``supervision``, and keeps the last reports.

    ``watched`` is the directory whose files end the processes when they change.
    """

    def __init__(
        self,
        client_ids: Sequence[str],
        command_of: CommandOf,
        clock: Clock,
        environment: Mapping[str, str],
        watched: Path | None = None,
    ) -> None:
        self._client_ids, self._command_of, self._clock = client_ids, command_of, clock
        self._environment, self._watched = environment, watched
        count = len(client_ids)
        self._supervision = Supervision(count, reloads=watched is not None)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._children: dict[int, Child] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        # The last report of each process that runs, and its time.
        self._reports: dict[int, tuple[Report, float]] = {}

    async def run(self) -> int:
        """Run until all processes have ended, and return the exit status.

        The first SIGTERM or SIGINT lets them leave, and the second one kills them.
        """
        supervision = self._supervision
        async with self._signals(), self._watching():
            await self._carry_out(supervision.begin(self._clock.now()))
            while (status := supervision.exit_status()) is None:
                await self._carry_out(self._decide(await self._next_event()))
        if supervision.failure:
            log.error("%s: the application ends", supervision.failure)
        return status

    def reports(self) -> list[Report]:
        """Return what is known of each process. Any thread may call it."""
        return [self._report(process) for process in range(len(self._client_ids))]

    def _report(self, process: int) -> Report:
        phase, found = self._supervision.phases[process], self._reports.get(process)
        metrics = [] if found is None else found[0].metrics
        own = _own_metrics(phase, self._supervision.restarts[process])
        health = self._health(phase, found)
        return Report(process, self._client_ids[process], health, [*metrics, *own])

    def _health(self, phase: Phase, found: tuple[Report, float] | None) -> ClientHealth:
        match phase:
            case Waiting():
                return ClientHealth(None, False, None, "it died, and starts again soon")
            case Ended():
                return ClientHealth(None, False, None, "it has ended")
            case Running(since):
                heard_at = since if found is None else found[1]
                silence = self._clock.now() - heard_at
                if silence > SILENT_SECONDS:
                    why = f"its process has been silent for {silence:.0f} s"
                    return ClientHealth(False, False, None, why)
                if found is None:
                    return ClientHealth(None, False, None, "its process starts")
                return found[0].health

    # --- events -------------------------------------------------------------------

    async def _next_event(self) -> Event | None:
        """Return the next event, or None if it is time to call ``on_time()``."""
        wake_at = self._supervision.wake_at()
        seconds = None if wake_at is None else max(0.0, wake_at - self._clock.now())
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._events.get(), seconds)
        return None

    def _decide(self, event: Event | None) -> list[Action]:
        supervision, now = self._supervision, self._clock.now()
        match event:
            case None:
                return supervision.on_time(now)
            case Exited(process, status):
                actions = supervision.on_exit(process, status, now)
                self._log_exit(process, status, now)
                return actions
            case Stop(is_first=True):
                log.info("stopping: all processes hand their shards over")
                return supervision.on_stop()
            case Stop():
                log.warning("stopping now: all processes are killed")
                return supervision.on_kill()
            case Changed(paths):
                names = ", ".join(path.name for path in paths[:3])
                log.info("%s changed: starting again", names)
                return supervision.on_change(now)

    def _log_exit(self, process: int, status: int, now: float) -> None:
        how = f"ended with status {status}"
        if status < 0:
            names = {number.value: number.name for number in signal.Signals}
            how = f"was ended by {names.get(-status, f'signal {-status}')}"
        phase = self._supervision.phases[process]
        then = ""
        if isinstance(phase, Waiting):
            then = f"; it starts again in {phase.until - now:g} s"
        log.log(
            logging.WARNING if status else logging.INFO,
            "process %d (%s) %s%s",
            process,
            self._client_ids[process],
            how,
            then,
            extra={"client_id": self._client_ids[process], "status": status},
        )

    @asynccontextmanager
    async def _signals(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def put(event: Event) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        with StopSignals(lambda: put(Stop(True)), lambda: put(Stop(False))):
            yield

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        if self._watched is None:
            yield
            return
        watching = asyncio.create_task(self._watch(self._watched))
        try:
            yield
        finally:
            await cancel_and_wait(watching)

    async def _watch(self, root: Path) -> None:
        async for paths in changes(root):
            self._events.put_nowait(Changed(paths))

    # --- processes ----------------------------------------------------------------

    async def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Start(process):
                    await self._start(process)
                case Send(process, number):
                    child = self._children.get(process)
                    if child is not None:
                        with suppress(ProcessLookupError):
                            child.process.send_signal(number)

    async def _start(self, process: int) -> None:
        """Start a process, in a session of its own.

        So Ctrl-C signals the supervisor only, which tells the processes once.
        """
        own, theirs = socket.socketpair()
        with theirs:
            started = await asyncio.create_subprocess_exec(
                *self._command_of(process, theirs.fileno()),
                stdin=DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**self._environment, PROCESS_VARIABLE: str(process)},
            )
        reading = asyncio.create_task(self._read_reports(process, own))
        self._children[process] = Child(started, reading)
        log.info("process %d (%s) starts", process, self._client_ids[process])
        task = asyncio.create_task(self._wait(process, self._children[process]))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _wait(self, process: int, child: Child) -> None:
        status = await child.process.wait()
        await cancel_and_wait(child.reading)
        self._reports.pop(process, None)
        del self._children[process]
        self._events.put_nowait(Exited(process, status))

    async def _read_reports(self, process: int, own: socket.socket) -> None:
        async with AsyncExitStack() as stack:
            reader, writer = await asyncio.open_connection(
                sock=own, limit=MAX_REPORT_BYTES
            )
            stack.callback(writer.close)
            while (line := await reader.readline()).endswith(b"\n"):
                self._reports[process] = read_report(line), self._clock.now()


def _own_metrics(phase: Phase, restarts: int) -> list[Family]:
    """Return what the supervisor counts for one process."""
    up, again = "kinesumer_process_up", "kinesumer_process_restarts"
    is_up = float(isinstance(phase, Running))
    return [
        Family(up, "gauge", "Whether the process runs.", [(up, {}, is_up)]),
        Family(
            again,
            "counter",
            "How often the process started again after its death.",
            [(f"{again}_total", {}, float(restarts))],
        ),
    ]
