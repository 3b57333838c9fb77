"""One client process of a fleet: its control and its journal."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kinesumer.testing.trial.journal import Handled, Journal, Note, now
from tests.system.process import worker
from tests.system.process.cable import Cable
from tests.system.process.launch import CONTEXT, ForkedProcess
from tests.system.process.worker import Settings


class Client:
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
        self._read = Journal(Path(settings.journal), settings.client_id)
        orders, self._orders = CONTEXT.Pipe(duplex=False)
        self.process = ForkedProcess(worker.main, (settings, orders), log, environment)
        orders.close()

    # --- what is done to it ----------------------------------------------------------

    def order(self, **orders: Any) -> None:
        """Change the handler's behaviour. Without arguments it becomes normal again."""
        if not self._orders.closed:
            with suppress(BrokenPipeError):  # the process has ended
                self._orders.send(worker.Orders(**orders))

    def kill(self) -> float:
        self.process.kill()
        return now()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        self.process.kill()
        self._orders.close()
        for cable in self.cables.values():
            cable.close()
        self.cables = {}

    # --- what it did -----------------------------------------------------------------

    @property
    def handled(self) -> list[Handled]:
        return self._journal().handled

    @property
    def events(self) -> list[Note]:
        return self._journal().notes

    @property
    def failure(self) -> str:
        failed = [e.text for e in self.events if e.name == "failed"]
        return failed[-1] if failed else ""

    def has(self, name: str) -> bool:
        return any(event.name == name for event in self.events)

    def _journal(self) -> Journal:
        if not self._is_read:
            # Poll before reading: an ended process writes nothing more.
            self._is_read = self.process.poll() is not None
            self._read.follow()
        return self._read
