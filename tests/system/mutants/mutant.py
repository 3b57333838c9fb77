"""A change to one rule, made to a copy of the package: some check must notice it."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.system.mutants.operators import Edits

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("kinesumer", "tests", "schema", "pyproject.toml")
LEFT_OUT = ("node_modules", "spark", "java")


class Mutant(NamedTuple):
    """A broken rule, and the checks that must notice it."""

    name: str
    rule: str
    """Section of the protocol, or K and Go with a number: rows of known failures."""
    edits: Edits
    tests: tuple[str, ...] = ()
    """The tests to run if no seed notices the mutant."""
    simulated: bool = True
    """False: the simulator doesn't run this code, or can't see the difference."""
    note: str = ""


class Module:
    """Makes mutants of one module; a moved module is renamed here only.

    The module is named relative to ``kinesumer``. A mutant without tests of its own has
    the default tests.
    """

    def __init__(self, name: str, *default_tests: str) -> None:
        self._name, self._default_tests = name, default_tests

    def __call__(
        self,
        name: str,
        rule: str,
        function: str,
        edits: Edits,
        *tests: str,
        simulated: bool = True,
        note: str = "",
    ) -> Mutant:
        """Return a mutant of a function, ``Class.method`` if it is a method.

        An empty function stands for the whole module.
        """
        where = f"{self._name}:{function}"
        edits = tuple(edit._replace(where=edit.where or where) for edit in edits)
        return Mutant(name, rule, edits, tests or self._default_tests, simulated, note)


def mutate(edits: Edits, sources: Path) -> dict[str, str]:
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
