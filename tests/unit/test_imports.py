"""Test that imports have no cycles, including imports for type checking."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
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


def cycles(graph: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Yield each cycle that a depth-first search finds."""
    done: set[str] = set()

    def search(name: str, above: list[str]) -> Iterator[list[str]]:
        if name in above:
            yield [*above[above.index(name) :], name]
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                yield from search(other, [*above, name])
            done.add(name)

    for name in sorted(graph):
        yield from search(name, [])


@cache
def module_graph() -> dict[str, set[str]]:
    """Return the imports of each module, without the root, which imports lazily."""
    known = modules()
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    del graph["kinesumer"]
    return graph


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert list(cycles(module_graph())) == []


def test_no_packages_import_each_other_in_a_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for name, others in module_graph().items():
        package = name.split(".")[1]
        named = {other.split(".")[1] for other in others if other != "kinesumer"}
        graph.setdefault(package, set()).update(named - {package})
    assert list(cycles(graph)) == []
