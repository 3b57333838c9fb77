"""Run a streaming reader as Spark's worker does. Tests start it as a process.

Arguments: a file for the last offset, then options as ``name=value``. Writes the data
of all rows to standard output, a line each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import BinaryType, StructField, StructType

from kinesumer.spark.options.parser import connection_from, parse_read
from kinesumer.spark.readers import StreamReader

TRIGGER_SECONDS = 0.2


def run(log: Path, options: Mapping[str, str]) -> None:
    connection = connection_from(options)
    schema = StructType([StructField("data", BinaryType())])
    reader = StreamReader(parse_read(options, connection), schema)
    offset = json.loads(log.read_text()) if log.exists() else reader.initialOffset()
    try:
        while True:
            end = reader.latestOffset(offset, reader.getDefaultReadLimit())
            if end != offset:
                log.write_text(json.dumps(end))
                _batch(reader, offset, end)
                offset = end
            time.sleep(TRIGGER_SECONDS)
    finally:
        reader.stop()


def _batch(
    reader: StreamReader, start: dict[str, object], end: dict[str, object]
) -> None:
    for task in reader.partitions(start, end):
        for batch in reader.read(task):
            for data in batch.column("data").to_pylist():
                print(data.decode(), flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]), dict(item.split("=", 1) for item in sys.argv[2:]))
