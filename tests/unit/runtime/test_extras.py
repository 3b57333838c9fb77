"""Test that commands without their extra say what to install, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Runs a program as if these packages were not installed.
WITHOUT = """
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError("No module named " + name, name=name)
import importlib.util
found = importlib.util.find_spec
def find_spec(name, package=None):
    return None if name in {packages} else found(name, package)
importlib.util.find_spec = find_spec
sys.meta_path.insert(0, Missing)
{program}
"""
# What CPython lacks on Windows, of what this project uses.
POSIX_MODULES = ("fcntl", "resource", "termios")
POSIX_NAMES = """
import os, signal
for name in ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGWINCH"):
    delattr(signal, name)
for name in ("fchmod", "fork", "killpg", "pread"):
    delattr(os, name)
"""
COMMANDS = ("ops.cli", "ops.exporter", "ops.supervisor", "testing.trial")
EXTRA = ("click", "prometheus_client", "rich")


def run_without(
    packages: tuple[str, ...], program: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that lacks packages."""
    program = WITHOUT.format(packages=packages, program=program)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", [EXTRA, ("rich",), ("prometheus_client",)])
@pytest.mark.parametrize(
    "module", ["kinesumer.ops.cli", "kinesumer.testing.simulation"]
)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(
    module: str, missing: tuple[str, ...]
) -> None:
    run_module = f"import runpy; runpy.run_module({module!r}, run_name='__main__')"
    done = run_without(missing, run_module)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"error: this command needs packages that are not installed "
        f"({', '.join(missing)}); run: pip install 'kinesumer[cli]'\n"
    )


@pytest.mark.slow
def test_all_other_modules_are_imported_without_the_extra_of_the_command() -> None:
    program = """
import importlib, pkgutil, kinesumer
commands = tuple(f"kinesumer.{name}" for name in {commands})
# FastStream's own metrics need what the commands need.
commands += ("kinesumer.faststream.prometheus",)
walk = pkgutil.walk_packages(kinesumer.__path__, "kinesumer.")
names = [
    name for _, name, _ in walk
    if not name.startswith(commands) and not name.endswith((".command", ".__main__"))
]
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        # Other extras may be missing, too.
        assert error.name not in {extra}, name
print(len(names))
"""
    program = program.replace("{extra}", repr(EXTRA))
    done = run_without(EXTRA, program.replace("{commands}", repr(COMMANDS)))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


@pytest.mark.parametrize(
    "module", ["kinesumer.ops.cli", "kinesumer.testing.simulation"]
)
def test_a_command_on_windows_says_where_it_runs(module: str) -> None:
    run_module = f"import runpy; runpy.run_module({module!r}, run_name='__main__')"
    done = run_without(POSIX_MODULES, POSIX_NAMES + run_module)
    assert done.returncode == 1
    assert done.stderr.startswith("error: this command needs Linux, macOS")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_library_consumes_on_windows() -> None:
    program = """
import asyncio
from kinesumer import Kinesumer, Start
from kinesumer.testing import EmbeddedAws, background

# The event loops of Windows have none.
del asyncio.SelectorEventLoop.add_signal_handler

async def consume(aws):
    async with Kinesumer(app="test", stop_signals=True) as client:
        async for record in client.consume("orders", start=Start.TRIM_HORIZON):
            print(record.data.decode())
            break

with background(EmbeddedAws()) as aws:
    os.environ.update(aws.environment())
    aws.create_table()
    aws.create_stream("orders", shards=1)
    aws.put("orders", b"one", "key")
    asyncio.run(consume(aws))
"""
    done = run_without(POSIX_MODULES, POSIX_NAMES + program)
    assert done.stdout == "one\n", done.stderr


def test_dead_letters_in_a_file_are_refused_on_windows() -> None:
    program = """
import asyncio
from kinesumer.dead_letters import open_dead_letters
from kinesumer.errors import ConfigurationError
try:
    asyncio.run(open_dead_letters("file:dead.jsonl"))
except ConfigurationError as error:
    print(error)
"""
    done = run_without(POSIX_MODULES, POSIX_NAMES + program)
    assert "'dead.jsonl'" in done.stdout, done.stderr
    assert "; use a queue" in done.stdout
