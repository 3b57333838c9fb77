"""A job that writes the records of the last hour as Parquet files, and ends.

python last_hour.py billing orders DIRECTORY
"""

from __future__ import annotations

# docs: job
import sys
from dataclasses import dataclass
from pathlib import Path

from pyarrow import parquet

from kinesumer.blocking import Kinesumer


@dataclass
class Order:
    customer: str
    total: float


def export(app: str, stream: str, directory: Path) -> None:
    with (
        Kinesumer(app, stop_signals=True) as client,
        client.consume(stream, start="1h", until="now", decode=Order) as records,
    ):
        for batch in records.batches(columns=True):
            name = f"{batch.shard_id}-{batch.sequence_number[0]}.parquet"
            parquet.write_table(batch.to_arrow(), directory / name)


if __name__ == "__main__":
    export(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
# docs: end
