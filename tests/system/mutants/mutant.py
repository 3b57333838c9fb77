"""A mutant: a change of one rule in a copy of the package."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.system.mutants.operators import Edit

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("kinesumer", "tests", "schema", "pyproject.toml")
LEFT_OUT = ("node_modules", "spark", "java")


class Mutant(NamedTuple):
    """A broken rule, and the checks of which at least one must notice it."""

    name: str
    rule: str
    edits: tuple[Edit, ...]
    # The tests to run if no seed notices the mutant.
    tests: tuple[str, ...] = ()
    # False if the simulator doesn't run this code, or can't see the difference.
    simulated: bool = True


def mutate(edits: Iterable[Edit], sources: Path) -> dict[str, str]:
    """Return the mutated code of each changed module, by its path below sources.

    Raises ValueError unless each edit finds one node and changes the code.
    """
    modules: dict[str, ast.Module] = {}
    for edit in edits:
        try:
            code = (sources / edit.path).read_text()
        except FileNotFoundError:
            raise ValueError(f"{edit.where}: there is no file {edit.path}") from None
        module = modules.setdefault(edit.path, ast.parse(code))
        before = ast.dump(module)
        edit.apply(module)
        if ast.dump(module) == before:
            raise ValueError(f"{edit.where}: {edit.pattern!r} is replaced by itself")
    return {path: ast.unparse(module) for path, module in modules.items()}


def plant(made: Mutant, directory: Path) -> None:
    """Copy package and tests to a directory, and mutate the package there."""
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignore)
        else:
            shutil.copy(source, directory / name)
    for path, code in mutate(made.edits, directory / "kinesumer").items():
        (directory / "kinesumer" / path).write_text(code)
