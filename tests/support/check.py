"""Run the fast checks of a change concurrently, for ``scripts/check``.

Without paths, it runs lint, format, types, import contracts, the quick unit tests and
five simulation seeds. With paths, it runs the checks of these files or directories. It
prints the output of a failed check at once. The last line names the first failure.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROCESSORS = os.cpu_count() or 1
MIRRORS = ("tests/unit", "tests/integration")
MUTANTS_APPLY = (
    "tests/system/mutants/test_mutants.py"
    "::test_each_mutant_changes_one_node_and_is_a_program"
)
QUICK = ("--hypothesis-profile=few", "-m", "not slow")


class Check(NamedTuple):
    """A program of the Python environment, and its arguments."""

    name: str
    command: tuple[str, ...]


def all_checks() -> list[Check]:
    """Return the checks of the whole project."""
    tests = _tests(["tests/unit", MUTANTS_APPLY], PROCESSORS, *QUICK)
    return [*_static(["."], contracts=True), _simulation(), tests]


def checks_of(paths: Iterable[Path]) -> list[Check]:
    """Return the checks for files or directories, whose paths begin at the root."""
    known = [*paths]
    code = [p for p in known if p.suffix == ".py" or (ROOT / p).is_dir()]
    package = [p for p in code if p.parts[:1] == ("kinesumer",)]
    tests = set().union(*map(tests_of, known))
    if package:
        tests.add(MUTANTS_APPLY)
    checks = _static([*map(str, code)], contracts=bool(package)) if code else []
    if any(map(_is_simulated, package)):
        checks.append(_simulation())
    if tests:
        checks.append(_tests(sorted(tests), workers=min(PROCESSORS, len(tests))))
    return checks


def tests_of(path: Path) -> set[str]:
    """Return the tests that concern a file or a directory.

    For a module, these are the tests at the corresponding paths, and the unit tests
    that import it. For a page, they are the tests of the documentation. For a test, it
    is the test itself.
    """
    is_directory = (ROOT / path).is_dir()
    if path.suffix == ".md":
        return {"tests/integration/docs"}
    if path.parts[0] == "tests":
        if is_directory or path.name.startswith("test_"):
            return {str(path)}
        return {str(path.parent)} if path.stem == "conftest" else _importers(path)
    if path.parts[0] != "kinesumer":
        return set()
    mirrored = [ROOT / top / path.relative_to("kinesumer") for top in MIRRORS]
    if is_directory:
        found = [mirror for mirror in mirrored if mirror.is_dir()]
    else:
        tests = (m.parent.glob("test_*.py") for m in mirrored)
        named = re.compile(rf"test_{path.stem}(_.+)?\.py").fullmatch
        found = [test for among in tests for test in among if named(test.name)]
    return {str(test.relative_to(ROOT)) for test in found} | _importers(path)


def _importers(path: Path) -> set[str]:
    """Return the unit tests that import a module by its name."""
    *package, name = path.with_suffix("").parts
    dotted = r"\.".join(package)
    imported = re.compile(
        rf"from {dotted} import (\([^)]*|[^(\n]*)\b{name}\b|\b{dotted}\.{name}\b"
    )
    files = (ROOT / "tests/unit").rglob("test_*.py")
    return {str(f.relative_to(ROOT)) for f in files if imported.search(f.read_text())}


def _is_simulated(path: Path) -> bool:
    """Return whether the simulation imports a module, or one in a directory."""
    return any(file.is_relative_to(ROOT / path) for file in _simulated_files())


@cache
def _simulated_files() -> list[Path]:
    # Use a separate process, since this process may have imported more modules.
    program = (
        "import sys, kinesumer.testing.simulation.run;"
        "print(*(m.__file__ for m in sys.modules.values()"
        " if getattr(m, '__file__', None)), sep='\\n')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(file) for file in done.stdout.splitlines()]


def _static(paths: Sequence[str], *, contracts: bool) -> list[Check]:
    checks = [
        Check("lint", ("ruff", "check", "--quiet", *paths)),
        Check("format", ("ruff", "format", "--check", "--quiet", *paths)),
        Check("types", ("mypy",)),
    ]
    if contracts:
        checks.append(Check("import contracts", ("lint-imports", "--no-logo")))
    return checks


def _simulation() -> Check:
    seeds = ("--count=5", "--seed=1", "--minutes=1", "--shape=each", "--no-shrink")
    return Check("simulation", ("python", "-m", "kinesumer.testing.simulation", *seeds))


def _tests(tests: Sequence[str], workers: int, *options: str) -> Check:
    command = ["pytest", "--quiet", "--exitfirst", "--failed-first"]
    if workers > 1:
        command += [f"--numprocesses={workers}", "--dist=worksteal"]
    return Check("tests", (*command, *options, *tests))


async def run_all(checks: Iterable[Check]) -> list[str]:
    """Run checks concurrently. Return the failed ones in the order of failure."""
    failed: list[str] = []
    await asyncio.gather(*(_run(check, failed) for check in checks))
    return failed


async def _run(check: Check, failed: list[str]) -> None:
    program, *arguments = check.command
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name(program),
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    if process.returncode:
        failed.append(check.name)
        print(f"== {check.name} failed:\n{output.decode(errors='replace')}", flush=True)
    else:
        print(f"-- {check.name}: {time.monotonic() - began:.1f} s", flush=True)


def main() -> None:
    """Run the checks; exit with 1 if one fails."""
    paths = [Path(path).resolve() for path in sys.argv[1:]]
    for path in paths:
        if not path.exists() or not path.is_relative_to(ROOT):
            sys.exit(f"error: {path} is not a file of this project")
    inside = [path.relative_to(ROOT) for path in paths if path != ROOT]
    checks = checks_of(inside) if inside else all_checks()
    if not checks:
        print("no check concerns these files; scripts/test runs everything")
    if failed := asyncio.run(run_all(checks)):
        sys.exit(f"error: failed first: {', then '.join(failed)}")


if __name__ == "__main__":
    main()
