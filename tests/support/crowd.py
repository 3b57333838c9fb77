"""Run processes of an example. Tests kill them, or stop them and resume them late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Self

from tests.support.clock import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RUN = [sys.executable, "-m", "kinesumer.ops.cli", "run"]


def load(name: str) -> Any:
    """Return an example's program as a module, such as ``postgresql/consume.py``."""
    spec = spec_from_file_location(f"example_{Path(name).parent.name}", EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run an example's program. At the end of the block, SIGTERM must end it well.

    All that it prints must have been read by then.
    """
    program = [sys.executable, str(EXAMPLES / command[0]), *command[1:]]
    with _ending_well(program, ROOT, environment) as process:
        yield process


@contextmanager
def running_app(
    folder: str, target: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Do the same with an example that ``kinesumer run`` starts in its folder."""
    program = [*RUN, target]
    with _ending_well(program, EXAMPLES / folder, environment) as process:
        yield process


@contextmanager
def killed_app(
    folder: str, target: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run it in the same way, but kill it at the end of the block, by SIGKILL.

    It may have ended by itself.
    """
    with _started([*RUN, target], EXAMPLES / folder, environment) as process:
        yield process


@contextmanager
def killed(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run an example's program, and kill it in the same way."""
    program = [sys.executable, str(EXAMPLES / command[0]), *command[1:]]
    with _started(program, ROOT, environment) as process:
        yield process


@contextmanager
def _ending_well(
    program: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    with _started(program, folder, environment) as process:
        yield process
        assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, rest) == (0, ""), errors


@contextmanager
def _started(
    program: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        program,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """Return the next lines that a process prints."""
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


class Crowd:
    """Processes of one example, which are killed when the block ends."""

    def __init__(self, example: str, stream: str) -> None:
        self._example, self._stream = example, stream
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def start(self, stop_in: str = "store", call: int = 0) -> subprocess.Popen[str]:
        """Start another process, which may stop itself at a call of a function.

        Later processes have lower client ids, and soon notice that earlier ones died.
        """
        worker = [sys.executable, "-m", "tests.integration.examples.worker"]
        client_id = f"client-{9 - len(self._processes)}"
        process = subprocess.Popen(
            [*worker, self._example, stop_in, str(call), client_id, self._stream],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process


def is_stopped(process: subprocess.Popen[str]) -> bool:
    """Return whether a process has stopped itself."""
    assert process.poll() is None, process.communicate()[1]
    options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def ended(process: subprocess.Popen[str], returncode: int) -> str:
    """Wait until a process has ended with a return code. Return its error text."""
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == returncode, errors
    return errors
