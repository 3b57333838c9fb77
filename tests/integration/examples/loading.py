"""The examples, as modules."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def load(name: str) -> Any:
    """Return an example's program as a module, such as ``postgresql/consume.py``."""
    spec = spec_from_file_location(f"example_{Path(name).parent.name}", EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
