"""Provide the modules that programs import from amazon_kclpy.

They replace the package even if it is installed: its processors talk to
MultiLangDaemon, and its ``CheckpointError`` isn't the one that is raised here.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import NoReturn

from kinesumer.errors import ConfigurationError
from kinesumer.kclpy import messages
from kinesumer.kclpy.checkpointer import (
    Checkpointer,
    CheckpointError,
    PreparedCheckpointer,
)
from kinesumer.kclpy.processor import (
    RecordProcessorBase,
    RecordProcessorBaseV1,
    RecordProcessorBaseV2,
)

PACKAGE = "amazon_kclpy"


class KCLProcess:
    """Stands for ``amazon_kclpy.kcl.KCLProcess``, which talks to MultiLangDaemon."""

    def __init__(self, record_processor: object, *_: object, **__: object) -> None:
        self._name = type(record_processor).__name__

    def run(self) -> NoReturn:
        """Raise ConfigurationError: ``kinesumer run`` calls the processor instead."""
        raise ConfigurationError(
            f"KCLProcess({self._name}()).run() was called while its module was "
            'imported: put the call under `if __name__ == "__main__":`'
        )


def _public(module: ModuleType) -> dict[str, object]:
    """Return the classes that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


# What each module holds, by its name. Parents come first.
MODULES: dict[str, dict[str, object]] = {
    PACKAGE: {},
    f"{PACKAGE}.checkpoint_error": {"CheckpointError": CheckpointError},
    f"{PACKAGE}.messages": _public(messages),
    f"{PACKAGE}.kcl": {
        "CheckpointError": CheckpointError,
        "Checkpointer": Checkpointer,
        "KCLProcess": KCLProcess,
        "PreparedCheckpointer": PreparedCheckpointer,
        "RecordProcessorBase": RecordProcessorBaseV1,
    },
    f"{PACKAGE}.v2": {},
    f"{PACKAGE}.v2.processor": {"RecordProcessorBase": RecordProcessorBaseV2},
    f"{PACKAGE}.v3": {},
    f"{PACKAGE}.v3.processor": {"RecordProcessorBase": RecordProcessorBase},
}


def provide_modules() -> None:
    """Let ``import amazon_kclpy`` and its modules find the classes of this package.

    Raises ConfigurationError if the real package was imported before.
    """
    present = sys.modules.get(PACKAGE)
    if present is not None and not hasattr(present, "__kinesumer__"):
        raise ConfigurationError(
            f"{PACKAGE} was imported before kinesumer could replace it: start the "
            "command without what imports it"
        )
    for name, values in MODULES.items():
        spec = ModuleSpec(name, None, origin="kinesumer", is_package=True)
        module = sys.modules[name] = module_from_spec(spec)
        vars(module).update(values, __kinesumer__=True)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
