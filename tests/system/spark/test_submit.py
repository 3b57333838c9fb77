"""Test that spark-submit, Spark Connect and the quickstart run as documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.doc_pages import ROOT, blocks
from tests.system.spark import plain_job
from tests.system.spark.processes import SPARK_HOME, Program, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = str(Path(plain_job.__file__))
CONF = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.sql.shuffle.partitions=1",
)
SUBMIT = [
    *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"),
    *(part for conf in CONF for part in ("--conf", conf)),
    JOB,
]
RECORDS = [b"record %d" % number for number in range(50)]
SECONDS = 240.0


def copied_by(
    command: list[str], arguments: list[str], aws: EmbeddedAws, directory: Path
) -> list[bytes]:
    """Run the job on a new stream, and return the data that it copied and read."""
    stream = f"submitted-{len(arguments)}"
    aws.create_stream(stream, 2)
    aws.create_stream(f"{stream}-copy", 2)
    for data in RECORDS:
        aws.put(stream, data, data.decode())
    environment = spark_environment(aws.environment(), directory)
    command = [*command, str(directory), stream, *arguments]
    with Program(command, environment, directory / "job.log") as job:
        assert job.wait(SECONDS) == 0, job.tail()
    copied: list[bytes] = pq.read_table(directory / "rows")["data"].to_pylist()
    return sorted(copied)


def test_submit_needs_no_registration(spark_aws: EmbeddedAws, tmp_path: Path) -> None:
    assert copied_by(SUBMIT, [], spark_aws, tmp_path) == sorted(RECORDS)


def test_connect_needs_no_registration(
    spark_connect: str, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    job = [sys.executable, JOB]
    assert copied_by(job, [spark_connect], spark_aws, tmp_path) == sorted(RECORDS)


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
