"""One client process of a fleet, as its parent process sees it."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kinesumer import Stream
from kinesumer.testing.trial import processes
from kinesumer.testing.trial.journal import Handled, Journal, now
from tests.system.process.cable import Cable

DEATH_STATUS = 70  # of a process that a record has killed


class Settings(processes.Settings, frozen=True, kw_only=True):
    """The settings of a worker, passed as its argument."""

    delay: float = 0.0  # seconds of work per record, unless orders change it
    # The kind of handler for ``run()``: "record", "thread" or "batch". If it is empty,
    # the worker iterates over records.
    runs: str = ""
    concurrency: int = 1
    # Use the blocking client, whose handlers run in threads.
    blocking: bool = False
    callbacks: bool = False  # note in the journal when shards are assigned and revoked
    # The numbers of records that end the process at once.
    deadly: list[int] = msgspec.field(default_factory=list)
    # Consume again after an error of the handler, as a supervisor would.
    rejoins: bool = False


@dataclass
class Orders:
    """The handler's behaviour from now on, as read from the pipe."""

    # Take this long for each record, without blocking the event loop.
    delay: float = 0.0
    block: float = 0.0  # block the event loop for this long, once
    # Block the event loop for this long with every record, and never await.
    spin: float = 0.0
    fail: bool = False  # raise an error at the next record
    # Consume these streams from now on.
    consume: list[Stream] = field(default_factory=list)
    wall: float | None = None  # set the wall clock ahead by these seconds
    squeeze: float = 0.0  # seconds with only ``left_bytes`` of memory
    left_bytes: int = 256 << 10
    # What the system refuses for ``refuse`` seconds.
    refused: list[str] = field(default_factory=list)
    refuse: float = 0.0


class Note(NamedTuple):
    """What a client did, beside handling records."""

    name: str
    text: str
    at: float


def notes_path(settings: Settings) -> str:
    return f"{settings.output}.notes"


class Client:
    def __init__(
        self, child: processes.Child, settings: Settings, cables: dict[str, Cable]
    ) -> None:
        self.client_id = settings.name
        self.log, self.process = child.log, child.process
        self.cables = cables
        self._child, self._is_read = child, False
        self._handled = Journal(Path(settings.output), Handled)
        self._notes = Journal(Path(notes_path(settings)), Note)

    # --- what is done to it ----------------------------------------------------------

    def order(self, **orders: Any) -> None:
        """Change the handler's behaviour. Without arguments it becomes normal again."""
        pipe = self.process.stdin
        if pipe is not None and not pipe.closed:
            with suppress(BrokenPipeError):  # the process has ended
                pipe.write(msgspec.json.encode(Orders(**orders)) + b"\n")

    def kill(self) -> float:
        self.process.kill()
        self.process.wait()
        return now()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        self._child.end()
        for cable in self.cables.values():
            cable.close()
        self.cables = {}

    # --- what it did -----------------------------------------------------------------

    @property
    def handled(self) -> list[Handled]:
        self._follow()
        return self._handled.lines

    @property
    def events(self) -> list[Note]:
        self._follow()
        return self._notes.lines

    @property
    def failure(self) -> str:
        failed = [e.text for e in self.events if e.name == "failed"]
        return failed[-1] if failed else ""

    def has(self, name: str) -> bool:
        return any(event.name == name for event in self.events)

    def _follow(self) -> None:
        if not self._is_read:
            # Poll before reading: an ended process writes nothing more.
            self._is_read = self.process.poll() is not None
            self._handled.follow()
            self._notes.follow()
