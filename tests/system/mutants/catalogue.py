"""All named mutants, from one TOML file for each section of the protocol.

["what the mutant does"]
rule = "section of the protocol, or a known failure, such as K3 or Go 19"
where = "module:Class.method", relative to kinesumer; "module:" is the whole module
drop = "pattern"                or any other kind of edit, see operators.py
edits = [{ drop = "pattern" }]  instead, if several nodes change
tests = ["unit/…"]              relative to tests; by default those of the module
simulated = false               the simulator can't notice this mutant
"""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from tests.system.mutants.operators import Edit, Kind

FILES = sorted(Path(__file__).parent.glob("*.toml"))
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


def copy_package(directory: Path) -> None:
    """Copy package and tests to a directory."""
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignore)
        else:
            shutil.copy(source, directory / name)


def plant(made: Mutant, directory: Path) -> None:
    """Copy package and tests to a directory, and mutate the package there."""
    copy_package(directory)
    for path, code in mutate(made.edits, directory / "kinesumer").items():
        (directory / "kinesumer" / path).write_text(code)


# --- the catalogue --------------------------------------------------------------------


def read_mutants(text: str) -> Iterator[Mutant]:
    """Yield the mutants of one section."""
    section = tomllib.loads(text)
    module_tests, simulated = section.pop("tests", {}), section.pop("simulated", True)
    for name, entry in section.items():
        where = entry["where"]
        edits = [read_edit(edit, where) for edit in entry.get("edits", [entry])]
        tests = entry.get("tests", module_tests.get(where.partition(":")[0], []))
        yield Mutant(
            name,
            entry["rule"],
            tuple(edits),
            tuple(f"tests/{test}" for test in tests),
            entry.get("simulated", simulated),
        )


def read_edit(entry: Mapping[str, Any], where: str) -> Edit:
    """Return an edit as its kind, its pattern and the pattern's replacement."""
    (kind,) = entry.keys() & {*get_args(Kind)}
    patterns = [entry[kind]] if isinstance(entry[kind], str) else entry[kind]
    return Edit(cast("Kind", kind), entry.get("where", where), *patterns)


MUTANTS = {made.name: made for path in FILES for made in read_mutants(path.read_text())}
