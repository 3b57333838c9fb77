"""Load the code of another version of this package beside the present one.

A copy has a name of its own, such as ``kinesumer_copy_1``. Where its code names this
package, in an import or in a text such as ``"kinesumer.wire._native"``, the copy's
name takes its place. So each version gets its own modules, also from imports that
run late.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import FileLoader, MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType

PRESENT = __name__.partition(".")[0]
_numbers = count(1)


def add_copy(source: Path) -> str:
    """Let the package in a folder be imported, and return the name of the copy.

    ``source`` is the root of a checkout. Raises ValueError if it holds no such package.
    """
    package = source / PRESENT
    if not (package / "__init__.py").is_file():
        raise ValueError(
            f"{source} holds no package {PRESENT}: name the root of a checkout"
        )
    name = f"{PRESENT}_copy_{next(_numbers)}"
    sys.meta_path.insert(0, _Finder(name, package))
    return name


class _Finder(MetaPathFinder):
    """Finds the Python modules of one copy. Compiled ones are found as usual."""

    def __init__(self, name: str, package: Path) -> None:
        self._name, self._package = name, package

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return where a module is, or None if it isn't one of the copy's."""
        top, *names = fullname.split(".")
        if top != self._name:
            return None
        place = self._package.joinpath(*names)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                loader = _Loader(fullname, str(file))
                return spec_from_file_location(fullname, file, loader=loader)
        return None


class _Loader(FileLoader, SourceLoader):
    """Compiles a module of a copy, and caches nothing beside its source."""

    def source_to_code(  # type: ignore[override]
        self, data: bytes, path: str, *, _optimize: int = -1
    ) -> CodeType:
        """Compile source code in which the copy's name stands for the package's."""
        renamed = _Renamer(self.name.partition(".")[0]).visit(ast.parse(data, path))
        code: CodeType = compile(renamed, path, "exec", optimize=_optimize)
        return code


class _Renamer(ast.NodeTransformer):
    """Puts a copy's name where code names the package."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _renamed(self, module: str) -> str:
        top, dot, rest = module.partition(".")
        return f"{self._name}{dot}{rest}" if top == PRESENT else module

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """Rename the module that names are imported from."""
        if node.module is not None:
            node.module = self._renamed(node.module)
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        """Rename imported modules. Raises ValueError for one without another name."""
        for alias in node.names:
            renamed = self._renamed(alias.name)
            if renamed != alias.name and alias.asname is None:
                raise ValueError(f"import {alias.name}: a copy can't bind this name")
            alias.name = renamed
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Rename a module that a text names."""
        text = node.value
        if isinstance(text, str) and text.startswith(f"{PRESENT}."):
            if all(part.isidentifier() for part in text.split(".")):
                node.value = self._renamed(text)
        return node
