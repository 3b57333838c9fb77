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

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from tests.system.mutants.mutant import Mutant
from tests.system.mutants.operators import Edit, Kind

FILES = sorted(Path(__file__).parent.glob("*.toml"))


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
