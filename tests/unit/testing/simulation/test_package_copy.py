"""Test that a copy of the package is loaded beside the present one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from kinesumer.model import streams
from kinesumer.testing.simulation.package_copy import add_copy

Load = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that writes the modules of a package, and loads one of them."""

    def load(first: str, **modules: str) -> ModuleType:
        package = tmp_path / "kinesumer"
        package.mkdir()
        for name, code in {"__init__": "", **modules}.items():
            (package / f"{name}.py").write_text(code)
        return import_module(f"{add_copy(tmp_path)}.{first}")

    return load


def test_a_copy_imports_its_own_modules(load: Load) -> None:
    loaded = load("one", one="from kinesumer.two import NUMBER", two="NUMBER = 7")

    assert loaded.NUMBER == 7


def test_an_import_that_runs_late_finds_the_copys_module(load: Load) -> None:
    late = "def read():\n    from kinesumer.two import NUMBER\n    return NUMBER"

    assert load("one", one=late, two="NUMBER = 7").read() == 7


def test_a_module_that_a_text_names_is_the_copys(load: Load) -> None:
    by_name = (
        "from importlib import import_module\nFOUND = import_module('kinesumer.two')"
    )

    assert load("one", one=by_name, two="NUMBER = 7").FOUND.NUMBER == 7


def test_a_copy_uses_the_same_logger_and_other_packages(load: Load) -> None:
    code = "import logging as log\nLOGGER = log.getLogger('kinesumer')"

    assert load("one", one=code).LOGGER is logging.getLogger("kinesumer")


def test_the_present_code_as_a_copy_has_classes_of_its_own() -> None:
    root = Path(streams.__file__).parents[2]
    copied = import_module(f"{add_copy(root)}.model.streams")

    assert copied.Stream is not streams.Stream
    assert copied.Stream("orders").name == "orders"


def test_nothing_is_written_beside_the_source(load: Load, tmp_path: Path) -> None:
    load("one", one="NUMBER = 7")

    assert sorted(file.name for file in tmp_path.rglob("*.py*")) == [
        "__init__.py",
        "one.py",
    ]
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_plain_import_that_would_bind_the_packages_name_is_refused(
    load: Load,
) -> None:
    with pytest.raises(ValueError, match=r"import kinesumer\.two: a copy can't bind"):
        load("one", one="import kinesumer.two", two="")


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no package kinesumer"):
        add_copy(tmp_path)
