"""The demo's child processes: none of them outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from kinesumer.demo.settings import ClientSetting, Place, SparkSetting
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kinesumer.demo.settings import DemoStream

START_SECONDS = 30.0


class Child:
    """One process, with a pipe whose end tells it that the parent is gone."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path
    ) -> None:
        self.name, self.log = name, log
        self.started_at = time.monotonic()
        self.told_to_end = False
        self.process = process

    @property
    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal that ends it, now or soon."""
        self.told_to_end = True
        if self.is_running:
            self.process.send_signal(number)

    def kill_group(self) -> None:
        """Kill it with the processes that it started."""
        self.told_to_end = True
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; tell whether it came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.process.wait()
        except TimeoutError:
            return False
        return True

    def last_words(self) -> str:
        """Return the last line of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it logged nothing"


class Processes:
    """Starts children and makes sure that they end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clients: list[Child] = []
        self._server: Child | None = None
        self._spark: Child | None = None
        self.environment = clean_environment(os.environ)

    async def start_server(self, shards: int) -> Place:
        """Start the embedded AWS and return where it is."""
        server = self._server = await self._start(
            "aws", "kinesumer.demo.server", str(shards), piped=True
        )
        assert server.process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await server.process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise KinesumerError(
                f"the embedded AWS didn't start: {server.last_words()}"
            )
        place = msgspec.json.decode(line, type=Place)
        self.environment |= place.environment
        return place

    async def start_client(self, streams: list[DemoStream]) -> Child:
        """Start one more client process."""
        name = f"client-{len(self.clients) + 1}"
        setting = ClientSetting(
            client_id=name, journal=str(self.journal(name)), streams=streams
        )
        text = msgspec.json.encode(setting).decode()
        child = await self._start(name, "kinesumer.demo.client", text)
        self.clients.append(child)
        return child

    async def start_spark(self, streams: list[DemoStream]) -> Child:
        """Start the driver of the Spark query, which goes on where it was."""
        place = str(self.directory / "spark")
        text = msgspec.json.encode(SparkSetting(directory=place, streams=streams))
        module = "kinesumer.demo.spark_query"
        self._spark = await self._start("spark", module, text.decode(), piped=True)
        return self._spark

    def journal(self, name: str) -> Path:
        """Return where a client notes what it has processed."""
        return self.directory / f"{name}.journal"

    @property
    def running(self) -> list[Child]:
        """The clients that run and haven't been told to end."""
        return [c for c in self.clients if c.is_running and not c.told_to_end]

    @property
    def server_runs(self) -> bool:
        """Tell whether the embedded AWS is still there."""
        return self._server is not None and self._server.is_running

    async def end_all(self) -> None:
        """Kill whatever still runs, and wait for it."""
        others = [c for c in (self._spark, self._server) if c is not None]
        for child in [*self.clients, *others]:
            child.kill_group()
            await child.process.wait()

    async def _start(
        self, name: str, module: str, argument: str, *, piped: bool = False
    ) -> Child:
        log = self.directory / f"{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                argument,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if piped else errors,
                stderr=errors,
                env=self.environment,
                # Ctrl-C is for the parent, which then ends its children itself.
                start_new_session=True,
            )
        return Child(name, process, log)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which no real AWS can be meant."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("AWS_")
    }
    nothing = os.devnull
    return kept | {
        "AWS_CONFIG_FILE": nothing,
        "AWS_SHARED_CREDENTIALS_FILE": nothing,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
