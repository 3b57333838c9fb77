"""A job that writes the records of the last hour as Parquet files, and ends.

python last_hour.py billing orders DIRECTORY
"""

from __future__ import annotations

# docs: job
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyarrow import parquet

from kinesumer import ColumnBatch, Start
from kinesumer.blocking import Kinesumer


@dataclass
class Order:
    customer: str
    total: float


def store(batch: ColumnBatch[Order], directory: Path) -> None:
    """Write a batch into a file of its own. Readers see whole files only."""
    first, last = batch.records[0].position, batch.records[-1].position
    file = directory / f"{batch.shard_id}-{first.text}-{last.text}.parquet"
    part = file.with_suffix(f".{uuid4()}")
    parquet.write_table(batch.to_arrow(), part)
    part.replace(file)


def export(app: str, stream: str, directory: Path, start: str | Start = "1h") -> None:
    with (
        Kinesumer(app, stop_signals=True) as client,
        client.consume(stream, start=start, until="now", decode=Order) as records,
    ):
        for batch in records.batches(columns=True):
            store(batch, directory)


if __name__ == "__main__":
    export(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
# docs: end
