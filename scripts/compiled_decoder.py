"""Compiles the decoder of CBOR into the wheel, where there is a C compiler.

Hatchling runs this hook. If the compiler fails, the wheel has only Python, and then
kinesumer reads JSON.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "kinesumer.wire._native"


def compile_module(root: Path, directory: Path) -> Path | None:
    """Return the compiled module, in a directory, or None if it can't be compiled."""
    from setuptools import Distribution, Extension

    source = root.joinpath(*MODULE.split(".")).with_suffix(".c")
    module = Extension(MODULE, [str(source)], optional=True)
    command = Distribution({"ext_modules": [module]}).get_command_obj("build_ext")
    command.build_lib = str(directory / "lib")
    command.build_temp = str(directory / "temp")
    command.ensure_finalized()
    command.run()
    made = Path(command.get_ext_fullpath(MODULE))
    return made if made.exists() else None


class CompiledDecoder(BuildHookInterface[Any]):
    """Adds the module to a wheel. An editable install gets it in the source tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the module before the wheel is written."""
        self._made_in = Path(mkdtemp())
        made = compile_module(Path(self.root), self._made_in)
        if made is None:
            self.app.display_warning("no C compiler, or no Python.h: without CBOR")
            return
        place = Path(*MODULE.split(".")).with_name(made.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":
            # Others may load the module at this moment: replace it in one step.
            target = Path(self.root, place)
            shutil.copy(made, target.with_suffix(f".{os.getpid()}"))
            os.replace(target.with_suffix(f".{os.getpid()}"), target)
        else:
            build_data["force_include"][str(made)] = str(place)

    def finalize(self, *_: object) -> None:
        """Remove the directory in which the module was compiled."""
        shutil.rmtree(self._made_in)
