"""Run Spark's programs in their own process sessions, and end all their processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import pyspark

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

SPARK_HOME = Path(pyspark.__file__).parent
BIN = Path(sys.executable).parent
PROC = Path("/proc")
SESSION_FIELD, PARENT_FIELD = 3, 1
GONE_SECONDS = 20.0
# Tests are too short to profit from an optimizing compiler, and they run in parallel.
# Verifying Spark's classes would take a fifth of the CPU time of its start.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

# The tests' plans run once over few rows, so compiling them costs more than it saves.
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}


class Member(NamedTuple):
    """A living process of a session."""

    pid: int
    parent: int
    command: str

    @property
    def is_python_worker(self) -> bool:
        return "pyspark.daemon" in self.command

    @property
    def is_executor(self) -> bool:
        return "CoarseGrainedExecutorBackend" in self.command

    @property
    def is_driver_jvm(self) -> bool:
        return "org.apache.spark.deploy.SparkSubmit" in self.command


class Program:
    """One command and all its descendants, even detached ones.

    Spark's Python daemons make process groups of their own, but stay in the session.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def members(self) -> list[Member]:
        return [m for m in _processes(self.process.pid) if m.pid != os.getpid()]

    def kill(self) -> None:
        deadline = time.monotonic() + GONE_SECONDS
        while members := self.members():
            for member in members:
                kill(member.pid)
            self.process.poll()
            if time.monotonic() > deadline:
                raise RuntimeError(f"still there after SIGKILL: {members}")
            time.sleep(0.05)
        self.process.wait()

    def wait(self, seconds: float) -> int:
        """Wait for the command's end, and return its status.

        If the command doesn't end in time, the error shows its log.
        """
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.process.args!r} hasn't ended after {seconds:g} s:\n"
                f"{self.tail()}"
            ) from None

    def text(self) -> str:
        """Return the command's log."""
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 60) -> str:
        """Return the end of the command's log, without the JVM's stacks."""
        found = self.text().splitlines()
        return "\n".join([line for line in found if line[:4] != "\tat "][-lines:])

    def wait_until(self, is_so: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            if not self.is_running:
                raise AssertionError(f"it ended before {what}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {seconds:g} s:\n{self.tail()}")
            time.sleep(0.1)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes(session: int) -> list[Member]:
    found = []
    for directory in PROC.glob("[0-9]*"):
        try:
            stat = (directory / "stat").read_text()
            command = (directory / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The name in parentheses may contain any character.
        state, *fields = stat[stat.rindex(")") + 2 :].split()
        if state == "Z" or int(fields[SESSION_FIELD - 1]) != session:
            continue
        text = command.replace(b"\0", b" ").decode(errors="replace")
        parent = int(fields[PARENT_FIELD - 1])
        found.append(Member(int(directory.name), parent, text))
    return found


def spark_environment(aws: Mapping[str, str], directory: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {
        **kept,
        **aws,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "PYTHONWARNINGS": "ignore",
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "spark-local"),
        "SPARK_WORKER_DIR": str(directory / "spark-work"),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def set_environment(patch: pytest.MonkeyPatch) -> None:
    """Set the environment of a session's JVM, which keeps that of its start."""
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    patch.setenv("PYTHONWARNINGS", "ignore")
    patch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)


def local_session(**settings: str) -> SparkSession:
    """Start a local session of two cores that reaches 127.0.0.1 only."""
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own warnings about pandas
        import pyspark.testing.utils  # noqa: F401
    builder = SparkSession.builder.master("local[2]").config(
        map={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            **INTERPRETED,
            **{f"spark.{name}": value for name, value in settings.items()},
        }
    )
    return builder.getOrCreate()
