"""Test that imports have no cycles, including imports for type checking."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import kinesumer

ROOT = Path(kinesumer.__file__).parent


def modules() -> dict[str, Path]:
    """Return the file of each module of the package."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Return the package's modules that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in known else node.module)
    return found & known.keys()


def test_no_modules_import_each_other_in_a_cycle() -> None:
    known = modules()
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    del graph["kinesumer"]  # the root imports lazily
    TopologicalSorter(graph).prepare()  # raises CycleError, which names a cycle
