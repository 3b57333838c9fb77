"""Test that the cookbook names what its programs need to be installed."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs" / "cookbook.md").read_text().partition("\n## ")[0]
PROGRAMS = dict(re.findall(r"\| `(examples/\S+\.py)` \|(.*)\|$", TABLE, re.M))
# What comes with kinesumer itself, and the program beside the one with the pool.
PRESENT = {"aiobotocore", "aiohttp", "botocore", "consume", "kinesumer", "msgspec"}
# What brings a module that has another name.
BRINGS = {
    "aioboto3": "kinesumer[aioboto3]",
    "dask": "distributed",
    "faststream": "kinesumer[faststream]",
    "psycopg": "psycopg[binary",
    "psycopg_pool": ",pool]",
    "pyarrow": "kinesumer[arrow]",
    "pyiceberg": "pyiceberg[sql-sqlite]",
}


def imports(program: str) -> Iterator[str]:
    """Yield the first parts of the modules that a program imports."""
    for node in ast.walk(ast.parse((ROOT / program).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_table_names_what_a_program_needs(program: str) -> None:
    needed = {*imports(program)} - PRESENT - sys.stdlib_module_names
    for module in needed:
        assert BRINGS.get(module, f"`{module}`") in PROGRAMS[program], module
