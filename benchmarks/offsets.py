"""Measure the size of a Spark query's offset, and the CPU time to write it.

    python -m benchmarks.offsets

The sequence numbers have the form of AWS's. The positions of "one second" are of
records that arrived within a second, those of "one hour" within an hour.
"""

from __future__ import annotations

import json
import time
from random import Random
from typing import TYPE_CHECKING

from benchmarks.report import Report
from kinesumer.model.positions import After, Position, StreamOffset
from kinesumer.wire import query_offsets
from tests.support.row_samples import aws_number

if TYPE_CHECKING:
    from kinesumer.model.positions import Offset

TIMES = 20
NOW = 1_763_805_000
AGES = {"one second": 1, "one hour": 3600}
RULES = {"plain JSON": 1 << 30, "compressed": 0}


def main() -> None:
    """Print the figures with compression, and without."""
    for shards in (100, 1_000, 10_000):
        report = Report(f"an offset of {shards:,} shards")
        for age, seconds in AGES.items():
            offset = offset_of(shards, seconds)
            for rule, query_offsets.MAX_PLAIN_BYTES in RULES.items():
                began = time.process_time()
                for _ in range(TIMES):
                    text = json.dumps(query_offsets.to_json(offset))
                millis = 1000 * (time.process_time() - began) / TIMES
                report.note(f"{rule}, {age}", f"{len(text):,} bytes, {millis:.2g} ms")
        report.print()


def offset_of(shards: int, seconds: int) -> Offset:
    """Return positions of records that arrived within so many seconds."""
    random, positions = Random(15), {}
    for shard in range(shards):
        seen = NOW + seconds * random.random()
        number = aws_number(shard, int(seen), random.randrange(1 << 40))
        positions[f"shardId-{shard:012}"] = After(Position(number), seen)
    return {"arn": StreamOffset(NOW, positions)}


if __name__ == "__main__":
    main()
