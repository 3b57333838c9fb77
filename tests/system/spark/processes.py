"""Programs of Spark as processes of a session of their own: none of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import pyspark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SPARK_HOME = Path(pyspark.__file__).parent
BIN = Path(sys.executable).parent
PROC = Path("/proc")
SESSION_FIELD, PARENT_FIELD = 3, 1
GONE_SECONDS = 20.0


class Member(NamedTuple):
    """A living process of a session."""

    pid: int
    parent: int
    command: str

    @property
    def is_python_worker(self) -> bool:
        """Tell whether it is a process that Spark forks for tasks and data sources."""
        return "pyspark.daemon" in self.command

    @property
    def is_executor(self) -> bool:
        """Tell whether it is an executor's JVM."""
        return "CoarseGrainedExecutorBackend" in self.command

    @property
    def is_driver_jvm(self) -> bool:
        """Tell whether it is the JVM of a driver."""
        return "org.apache.spark.deploy.SparkSubmit" in self.command


class Program:
    """One command and everything that it started, however it detached itself.

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
        """Tell whether the command itself hasn't ended."""
        return self.process.poll() is None

    def members(self) -> list[Member]:
        """Return the living processes of its session."""
        return [m for m in _processes(self.process.pid) if m.pid != os.getpid()]

    def kill(self) -> None:
        """Kill the whole session, and wait until nothing of it lives."""
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
        """Wait for the command's end and return its status; show its log if late."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.process.args!r} hasn't ended after {seconds:g} s:\n"
                f"{self.tail()}"
            ) from None

    def tail(self, lines: int = 60) -> str:
        """Return the end of its log, without the JVM's stacks."""
        found = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in found if line[:4] != "\tat "][-lines:])

    def wait_until(self, is_so: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for something that the program brings about."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if not self.is_running:
                raise AssertionError(f"it ended before {what}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {seconds:g} s:\n{self.tail()}")
            time.sleep(0.1)


def kill(pid: int) -> bool:
    """Kill a process; tell whether it was still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _processes(session: int) -> list[Member]:
    found = []
    for directory in PROC.glob("[0-9]*"):
        try:
            stat = (directory / "stat").read_text()
            command = (directory / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The name in parentheses may hold anything.
        state, *fields = stat[stat.rindex(")") + 2 :].split()
        if state == "Z" or int(fields[SESSION_FIELD - 1]) != session:
            continue
        text = command.replace(b"\0", b" ").decode(errors="replace")
        parent = int(fields[PARENT_FIELD - 1])
        found.append(Member(int(directory.name), parent, text))
    return found


def spark_environment(aws: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return what programs of Spark are started with: they reach 127.0.0.1 only."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {
        **kept,
        **aws,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "PYTHONWARNINGS": "ignore",
        # Tests end before it pays to compile for speed, and run beside each other.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "spark-local"),
        "SPARK_WORKER_DIR": str(directory / "spark-work"),
        "NO_PROXY": "127.0.0.1,localhost",
    }
