"""Control a trial's child processes. No child outlives the parent process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from kinesumer.config import STATE_STORE, Config
from kinesumer.errors import KinesumerError
from kinesumer.model.streams import Stream
from kinesumer.model.table_streams import is_table_stream
from kinesumer.telemetry.history_file import HISTORY_VARIABLE

CHILD = "kinesumer.testing.trial.child"
WAIT_SECONDS = 30.0  # a process starts or leaves within this time
# After a crash, at most this many records of a shard may be processed again. A low
# limit makes a trial a harder test.
CONFIG = Config(max_uncommitted_records=1000)


class Names(msgspec.Struct, frozen=True):
    """The app of the clients, that of the Spark query, and the state store's table."""

    app: str = "demo"
    spark_app: str = "demo-spark"
    table: str = STATE_STORE


class TrialStream(msgspec.Struct, frozen=True):
    """A stream, and the IAM role that other accounts assume to write it."""

    arn: str
    label: str
    read: Stream  # as users pass it to consume()
    writer_role: str | None = None

    @property
    def is_of_table(self) -> bool:
        """True if it is the stream of a DynamoDB table."""
        return is_table_stream(self.arn)


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of the embedded AWS, and the environment variables for its users."""

    environment: dict[str, str]
    streams: list[TrialStream]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a client or a Spark driver gets as its argument."""

    name: str  # a client's id
    output: str  # the client's journal, or the directory of the query
    streams: list[Stream]
    names: Names
    config: Config


class Child:
    """A child process. Its standard input is a pipe that closes if the parent ends."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name: str = name
        self.log: Path = log
        self.sent: signal.Signals | None = None  # the last signal sent to it
        self.process = process

    @property
    def is_running(self) -> bool:
        """Return whether the process is still running."""
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal that ends the process."""
        self.sent = number
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill the process and all its child processes, and close its pipes."""
        with self.process, suppress(ProcessLookupError):
            # The id of an ended process may belong to another one by now.
            if self.is_running:
                os.killpg(self.process.pid, signal.SIGKILL)

    async def read_line(self, seconds: float) -> bytes | None:
        """Return a line of the output, or None if there is none within ``seconds``.

        In that case, a thread waits until the process ends.
        """
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.to_thread(self.process.stdout.readline)
        except TimeoutError:
            return None

    def last_log_line(self) -> str:
        """Return the last line of the process's log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it logged nothing"

    def error_line(self) -> str:
        """Return the last log line that names an error.

        That may not be the last line, since Spark logs query plans after its errors.
        """
        lines = self.log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return errors[-1].strip() if errors else self.last_log_line()


class Processes:
    """Starts the child processes, and kills them at the end of the block."""

    def __init__(
        self, directory: Path, environment: Mapping[str, str], names: Names
    ) -> None:
        self.directory: Path = directory
        self.names: Names = names
        # Where the clients write their histories: by default, for this trial only.
        given = environment.get(HISTORY_VARIABLE)
        own = f"{names.app}-{os.getpid()}"
        self.histories: Path = Path(given, own) if given else directory / "histories"
        self.histories.mkdir(parents=True)
        self.environment: dict[str, str] = {
            **environment,
            HISTORY_VARIABLE: str(self.histories),
        }
        self.clients: list[Child] = []
        self._children: list[Child] = []

    async def start_server(self, shards: int) -> ServerInfo:
        """Start the embedded AWS. All processes that start later use it."""
        server = self.start("aws", CHILD, "server", str(shards), has_output=True)
        line = await server.read_line(WAIT_SECONDS)
        if not line:
            raise KinesumerError(
                f"the embedded AWS didn't start: {server.last_log_line()}; try again"
            )
        info = msgspec.json.decode(line, type=ServerInfo)
        self.environment |= info.environment
        return info

    def start_client(self, streams: list[TrialStream]) -> Child:
        """Start one more client process."""
        name = f"client-{len(self.clients) + 1}"
        settings = self._settings(name, self.journal(name), streams)
        child = self.start(name, CHILD, "client", settings)
        self.clients.append(child)
        return child

    def start_spark(self, streams: list[TrialStream]) -> Child:
        """Start the driver of the Spark query, which continues from its checkpoint."""
        settings = self._settings("spark", self.directory / "spark", streams)
        return self.start("spark", CHILD, "spark", settings, has_output=True)

    def start(
        self,
        name: str,
        module: str,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        has_output: bool = False,
    ) -> Child:
        """Run a module of Python in a child process, and add environment variables.

        What it writes is in its log, unless its standard output is to be read as lines.
        """
        log = self.directory / f"{name}.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(  # noqa: S603 - a module of this project
                [sys.executable, "-m", module, *arguments],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if has_output else errors,
                stderr=errors,
                env={**self.environment, **(variables or {})},
                # In its own session, a child gets no Ctrl-C. The parent ends it
                # instead.
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def journal(self, name: str) -> Path:
        """Return the path of a client's journal."""
        return self.directory / f"{name}.journal"

    @property
    def running(self) -> list[Child]:
        """Return the running clients that haven't received a signal."""
        return [c for c in self.clients if c.is_running and c.sent is None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()

    def _settings(self, name: str, output: Path, streams: list[TrialStream]) -> str:
        settings = Settings(
            name=name,
            output=str(output),
            streams=[stream.read for stream in streams],
            names=self.names,
            config=CONFIG,
        )
        return msgspec.json.encode(settings).decode()


def isolated_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that give no access to a real AWS account."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("AWS_")
    }
    return kept | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
