"""Test the modules that stand for amazon_kclpy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from kinesumer import kclpy
from kinesumer.errors import ConfigurationError
from kinesumer.kclpy import messages
from kinesumer.kclpy.modules import MODULES, PACKAGE, provide_modules


@pytest.fixture(autouse=True)
def no_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what the test adds to Python's modules."""
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def test_a_program_finds_what_it_imports_from_the_package() -> None:
    provide_modules()
    found: dict[str, Any] = {}
    exec(
        "import amazon_kclpy.v2.processor\n"
        "from amazon_kclpy import kcl, messages\n"
        "from amazon_kclpy.checkpoint_error import CheckpointError\n"
        "from amazon_kclpy.messages import ProcessRecordsInput\n"
        "from amazon_kclpy.v3 import processor\n",
        found,
    )
    assert found["kcl"].CheckpointError is kclpy.CheckpointError
    assert found["CheckpointError"] is kclpy.CheckpointError
    assert found["kcl"].RecordProcessorBase is kclpy.RecordProcessorBaseV1
    v2 = found["amazon_kclpy"].v2.processor
    assert v2.RecordProcessorBase is kclpy.RecordProcessorBaseV2
    assert found["processor"].RecordProcessorBase is kclpy.RecordProcessorBase
    assert found["ProcessRecordsInput"] is messages.ProcessRecordsInput
    assert found["messages"].Record is messages.Record


def test_the_modules_can_be_provided_again_and_be_looked_for() -> None:
    provide_modules()
    provide_modules()
    assert find_spec("amazon_kclpy.kcl") is not None
    with pytest.raises(ModuleNotFoundError):
        import_module("amazon_kclpy.dispatch")


def test_the_real_package_must_not_be_imported_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGE, ModuleType(PACKAGE))
    with pytest.raises(ConfigurationError, match="was imported before kinesumer"):
        provide_modules()


def test_a_process_that_is_run_at_the_import_of_its_module_is_refused() -> None:
    provide_modules()
    kcl = import_module("amazon_kclpy.kcl")
    process = kcl.KCLProcess(kclpy.RecordProcessorBase(), sys.stdin)
    with pytest.raises(ConfigurationError, match='under `if __name__ == "__main__":`'):
        process.run()
