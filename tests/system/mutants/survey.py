"""Changes every operator, number and branch of ``core`` and ``wire``, one at a time.

    python -m tests.system.mutants.survey --cosmic-ray .venv-mutants/bin/cosmic-ray
    python -m tests.system.mutants.survey --module core/plan …

cosmic-ray changes a copy of the package and runs the tests of the changed module there;
``survivors.md`` explains each change that no test can notice.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.system.mutants.catalogue import ROOT, copy_package

MODULES = sorted(
    f"{package}/{path.stem}"
    for package in ("core", "wire")
    for path in ROOT.glob(f"kinesumer/{package}/[!_]*.py")
)
TESTS = {
    "core/assignment": "assignment assignment_max_shards",
    "core/delivery": "delivery handout",
    "core/handout": "handout delivery",
    "core/linear_partition": "linear_partition load_assignor",
    "core/lineage": "lineage lineage_ends",
    "core/plan": "plan rebalance",
    "wire/shard_writes": "shard_writes writes admin_writes",
    "wire/writes": "writes admin_writes",
    "wire/aggregate_readers": "aggregate_readers aggregation put_records",
    "wire/aggregation": "aggregation aggregate_readers put_records",
    "wire/put_records": "put_records aggregation",
    "wire/fields": "rows fields records",
    "wire/admin_writes": "admin_writes writes",
    "wire/rows": "rows fields writes",
}
"""The tests of modules with several test files, or with one of another name."""
BINARY = {
    *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "Mul_Add", "Div_Mul", "Div_FloorDiv"),
    *("FloorDiv_Mul", "FloorDiv_Div", "Mod_FloorDiv", "Pow_Mul", "LShift_RShift"),
    *("RShift_LShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitOr"),
}
"""Replacements of binary operators that can give a result of the same type."""
IDENTITY = {"Is_IsNot", "IsNot_Is"}


class Change(NamedTuple):
    """A mutation, and whether a test noticed it."""

    line: int
    operator: str
    number: int
    outcome: str
    diff: str


def tests_of(module: str) -> list[str]:
    """Return the paths of a module's tests."""
    package, _, name = module.partition("/")
    names = TESTS.get(module, name).split()
    return [f"tests/unit/{package}/test_{test}.py" for test in names]


def survey(module: str, cosmic_ray: str, seconds: float) -> list[Change]:
    """Carry out all changes of one module in a copy of the package."""
    with tempfile.TemporaryDirectory(prefix="kinesumer-survey-") as directory:
        place = Path(directory)
        copy_package(place)
        config, session = place / "survey.toml", place / "survey.sqlite"
        config.write_text(_config(module, seconds))
        _run([cosmic_ray, "init", str(config), str(session)], place)
        _leave_out(session, place / f"kinesumer/{module}.py")
        _run([cosmic_ray, "exec", str(config), str(session)], place)
        return _changes(session)


def _config(module: str, seconds: float) -> str:
    tests = " ".join(tests_of(module))
    command = f"{sys.executable} -B -m pytest -x -q -p no:cacheprovider {tests}"
    return (
        "[cosmic-ray]\n"
        f'module-path = "kinesumer/{module}.py"\n'
        f"timeout = {seconds}\n"
        "excluded-modules = []\n"
        f"test-command = {json.dumps(command)}\n"
        '[cosmic-ray.distributor]\nname = "local"\n'
    )


def _run(command: list[str], place: Path) -> None:
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)


def _leave_out(session: Path, source: Path) -> None:
    """Leave out changes of annotations, and operators that only break types."""
    annotated, lines = _annotations(source), source.read_text().splitlines()
    with sqlite3.connect(session) as database:
        found = database.execute(
            "SELECT job_id, operator_name, start_pos_row, start_pos_col "
            "FROM mutation_specs"
        ).fetchall()
        for job, operator, row, column in found:
            typing = "TYPE_CHECKING" in lines[row - 1]
            if typing or not _counts(operator) or (row, column) in annotated:
                for table in ("mutation_specs", "work_items"):
                    database.execute(f"DELETE FROM {table} WHERE job_id = ?", (job,))


def _counts(operator: str) -> bool:
    name = operator.rpartition("/")[2]
    _, _, kinds = name.partition("Operator_")
    if name.startswith("ReplaceBinaryOperator"):
        return kinds in BINARY
    if name.startswith("ReplaceComparisonOperator"):
        return kinds in IDENTITY or "Is" not in kinds
    return True


def _annotations(source: Path) -> set[tuple[int, int]]:
    """Return the places of operators and numbers in annotations."""
    found: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if part is not None:
                for line in range(part.lineno, part.end_lineno + 1):
                    first = part.col_offset if line == part.lineno else 0
                    last = part.end_col_offset if line == part.end_lineno else 200
                    found.update((line, column) for column in range(first, last + 1))
    return found


def _changes(session: Path) -> list[Change]:
    with sqlite3.connect(session) as database:
        found = database.execute(
            "SELECT start_pos_row, operator_name, occurrence, "
            "COALESCE(test_outcome, worker_outcome), diff "
            "FROM mutation_specs JOIN work_results USING (job_id) "
            "ORDER BY start_pos_row, operator_name, occurrence"
        )
        return [Change(*row) for row in found]


def _changed_lines(diff: str) -> list[str]:
    lines = diff.splitlines()
    return [x for x in lines if x[:1] in "+-" and x[:3] not in ("+++", "---")]


def main() -> None:
    """Print each module's surviving changes, and the number of all changes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", choices=MODULES)
    parser.add_argument("--cosmic-ray", default="cosmic-ray")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    # cosmic-ray runs in other directories, so the path must be absolute.
    cosmic_ray = shutil.which(options.cosmic_ray)
    if cosmic_ray is None:
        parser.error(f"--cosmic-ray: there is no program {options.cosmic_ray}")
    for module in options.module or MODULES:
        changes = survey(module, os.path.abspath(cosmic_ray), options.seconds)
        lived = [c for c in changes if "SURVIVED" in c.outcome.upper()]
        for change in lived:
            print(f"{module}.py:{change.line} {change.operator} {change.number}")
            print("\n".join(_changed_lines(change.diff)))
        print(f"{module}: {len(lived)} of {len(changes)} live", flush=True)


if __name__ == "__main__":
    main()
