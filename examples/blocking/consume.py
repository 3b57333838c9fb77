"""A consumer without asyncio.

    python consume.py billing orders payments

The state store's table is that of KINESUMER_TABLE. Start it as often as you like.
"""

from __future__ import annotations

import sys

import kinesumer.blocking
from kinesumer import Record, Start


# docs: consume
def handle(record: Record) -> None:
    print(record.shard_id, record.partition_key, record.data.decode(), flush=True)


def consume(app: str, streams: list[str]) -> None:
    with kinesumer.blocking.Kinesumer(app, stop_signals=True) as client:
        for record in client.consume(streams, start=Start.TRIM_HORIZON):
            handle(record)


# docs: end

if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2:])
