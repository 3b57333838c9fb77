"""Run the job that writes the records of the last hour as Parquet files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from kinesumer import ColumnBatch, Start
from kinesumer.testing import EmbeddedAws, record
from tests.integration.examples.conftest import stored_rows
from tests.support.clock import PATIENCE_SECONDS, wait_until
from tests.support.crowd import EXAMPLES, killed, load

PROGRAM = "parquet/last_hour.py"


def put(aws: EmbeddedAws, *totals: int) -> None:
    for total in totals:
        data = json.dumps({"customer": "ann", "total": total}).encode()
        aws.put("orders", data, f"key {total}")


def totals(directory: Path) -> list[float]:
    """Return the totals of all orders in the files, each order once."""
    return sorted(row["total"] for row in stored_rows(directory))


@pytest.mark.process
def test_a_job_writes_what_arrived_since_its_start_and_the_next_one_goes_on(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    put(kinesumer_aws, 1, 2)
    time.sleep(0.1)  # times of records are in milliseconds
    start = Start.at(datetime.now(UTC))
    time.sleep(0.1)
    put(kinesumer_aws, 3, 4, 5)
    export = load(PROGRAM).export
    export("exports", "orders", tmp_path, start)
    assert totals(tmp_path) == [3, 4, 5]
    put(kinesumer_aws, 6)
    export("exports", "orders", tmp_path)
    assert totals(tmp_path) == [3, 4, 5, 6]
    # Nothing failed, so no order was written twice.
    assert sum(map(rows_of, tmp_path.iterdir())) == 4


def rows_of(file: Path) -> int:
    return int(parquet.read_metadata(file).num_rows)


@pytest.mark.process
def test_a_job_that_was_killed_writes_every_order_when_it_runs_again(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    put(kinesumer_aws, *range(50))
    with killed(PROGRAM, "exports", "orders", str(tmp_path)):
        wait_until(lambda: any(tmp_path.glob("*.parquet")), "a file is written")
    command = [sys.executable, str(EXAMPLES / PROGRAM), "exports", "orders"]
    subprocess.run([*command, str(tmp_path)], check=True, timeout=PATIENCE_SECONDS)
    assert totals(tmp_path) == [*range(50)]


def store(directory: Path, *positions: tuple[int, int | None]) -> None:
    """Store a batch by the program's function."""
    records = [
        record(
            b"",
            sequence_number=str(number),
            sub_sequence_number=sub,
            arrived_at=datetime(2026, 1, 31, tzinfo=UTC),
        )
        for number, sub in positions
    ]
    source = records[0].source
    assert source is not None
    load(PROGRAM).store(ColumnBatch(records, 0, source), directory)


def test_a_late_write_of_a_shorter_batch_replaces_nothing(tmp_path: Path) -> None:
    store(tmp_path, (1, None), (2, None), (3, None))
    store(tmp_path, (1, None), (2, None))
    assert len(stored_rows(tmp_path)) == 3


def test_batches_of_one_aggregate_have_files_of_their_own(tmp_path: Path) -> None:
    store(tmp_path, (1, 0), (1, 1))
    store(tmp_path, (1, 2), (1, 3))
    assert len(stored_rows(tmp_path)) == 4


def test_an_interrupted_write_leaves_no_file_that_readers_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(table: Any, where: Path) -> None:
        where.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path, (1, None))
    assert [*tmp_path.iterdir()] != []
    assert stored_rows(tmp_path) == []
