"""A consumer without asyncio.

    python consume.py billing orders payments

The state store's table is that of KINESUMER_TABLE. Start it as often as you like.
"""

from __future__ import annotations

import os
import signal
import sys

import kinesumer.blocking
from kinesumer import Record, Start


# --8<-- [start:consume]
def handle(record: Record) -> None:
    print(record.shard_id, record.partition_key, record.data.decode(), flush=True)


def consume(app: str, streams: list[str]) -> None:
    table = os.environ.get("KINESUMER_TABLE", "kinesumer-state-store")
    with kinesumer.blocking.Kinesumer(app, table=table) as client:
        signal.signal(signal.SIGTERM, lambda *_: client.leave())
        for record in client.consume(streams, start=Start.TRIM_HORIZON):
            handle(record)


# --8<-- [end:consume]

if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2:])
