"""Test that the quickstart of the page about Spark runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.docs.pages import ROOT, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = 240.0


def test_the_program_prints_the_amounts_of_all_shards(tmp_path: Path) -> None:
    [script] = [block.text for block in blocks("bash") if block.page == "docs/spark.md"]
    found = re.search(
        r"^cat > (\S+) <<'PYTHON'\n(.*?)^PYTHON$\n(.*)", script, re.M | re.S
    )
    assert found is not None
    file, program, last = found.groups()
    assert last == f"python {file}\n"
    (tmp_path / file).write_text(program)
    done = subprocess.run(
        [sys.executable, file],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\|shardId-\d+ *\|(.*)\|$", done.stdout, re.M)
    assert len(rows) == 4
    counts = [[int(cell) for cell in row.split("|")] for row in rows]
    assert 1000 in [sum(column) for column in zip(*counts, strict=True)]
