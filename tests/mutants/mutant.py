"""A change to one rule, made to a copy of the package: some check must notice it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kinesumer", "tests", "schema", "pyproject.toml")
LEFT_OUT = ("node_modules", "spark", "java")


class Patch(NamedTuple):
    """A text of one file, and what stands there instead."""

    path: str
    """Below ``kinesumer/``."""
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the changed file. Raises ValueError unless the text is there once."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.path} has {found} places like {self.old!r}, not 1")
        return text.replace(self.old, self.new)


class Mutant(NamedTuple):
    """A rule that is broken, and what notices that."""

    name: str
    rule: str
    """Section of the protocol, or K and Go with a number: rows of known failures."""
    patches: tuple[Patch, ...]
    tests: tuple[str, ...] = ()
    """What is asked if no seed notices it."""
    simulated: bool = True
    """False: the simulator doesn't run this code, or can't see the difference."""
    note: str = ""


def mutant(
    name: str,
    rule: str,
    path: str,
    old: str,
    new: str,
    *tests: str,
    simulated: bool = True,
    note: str = "",
) -> Mutant:
    """Return a mutant of one patch."""
    patches = (Patch(path, old, new),)
    return Mutant(name, rule, patches, tests, simulated, note)


def plant(made: Mutant, directory: Path) -> None:
    """Copy package and tests to a directory, and apply the mutant's patches there."""
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignore)
        else:
            shutil.copy(source, directory / name)
    for patch in made.patches:
        place = directory / "kinesumer" / patch.path
        place.write_text(patch.applied(place.read_text()))
