"""One process of a fleet, what is done to it, and what it did."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tests.system.process import oracle
from tests.system.process.worker import Orders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.system.process.cable import Cable
    from tests.system.process.oracle import Event, Handled
    from tests.system.process.worker import Settings

ROOT = Path(__file__).parents[3]

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Client:
    """One process of a fleet."""

    def __init__(
        self,
        settings: Settings,
        log: Path,
        cables: dict[str, Cable],
        environment: Mapping[str, str],
    ) -> None:
        self.client_id = settings.client_id
        self.log = log
        self.cables = cables
        self._is_read = False
        self._read = oracle.Journal(Path(settings.journal), settings.client_id)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.system.process.launch",
                    msgspec.json.encode(settings).decode(),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
            )

    # --- what is done to it ----------------------------------------------------------

    def order(self, **orders: Any) -> None:
        """Tell the handler what to do from now on; no orders: nothing unusual."""
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            return
        with suppress(BrokenPipeError):  # it is gone
            self.process.stdin.write(msgspec.json.encode(Orders(**orders)) + b"\n")
            self.process.stdin.flush()

    def kill(self) -> float:
        """Kill it at once; return when."""
        self.process.kill()
        self.process.wait()
        return now()

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Ask it to leave, as an orchestrator does."""
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End it however that may be."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        for cable in self.cables.values():
            cable.close()
        self.cables = {}

    # --- what it did -----------------------------------------------------------------

    @property
    def handled(self) -> list[Handled]:
        """What it handled so far."""
        return self._journal().handled

    @property
    def events(self) -> list[Event]:
        """What else happened to it."""
        return self._journal().events

    @property
    def failure(self) -> str:
        """The error that ended it last, or nothing."""
        failed = [e.text for e in self.events if e.name == "failed"]
        return failed[-1] if failed else ""

    def has(self, name: str) -> bool:
        """Tell whether it wrote down such an event."""
        return any(event.name == name for event in self.events)

    def _journal(self) -> oracle.Journal:
        if not self._is_read:
            # Asked first: what has ended writes nothing more.
            self._is_read = self.process.poll() is not None
            self._read.follow()
        return self._read
