"""A client in a KCL fleet: STREAM TABLE CLIENT_ID FAILOVER_SECONDS.

Prints the same lines as FleetWorker.java. Without a TABLE ("-"), it consumes from the
app's own table.
"""

from __future__ import annotations

import asyncio
import sys
import time

from kinesumer import Config, Kinesumer, Start

APP = "mixed"


def say(event: str, shard_id: str, data: str = "") -> None:
    print(int(1000 * time.time()), event, shard_id, data, flush=True)


async def main(stream: str, table: str, client_id: str, failover: str) -> None:
    """Consume until a signal."""
    config = Config(kcl_failover_seconds=float(failover), commit_interval_seconds=1.0)
    client = Kinesumer(
        APP,
        kcl_table=None if table == "-" else table,
        client_id=client_id,
        config=config,
        stop_signals=True,
    )
    async with client:
        records = client.consume(
            stream,
            start=Start.TRIM_HORIZON,
            on_revoked=lambda shard, reason: say(reason, shard.key.shard_id),
        )
        async for record in records:
            say("record", record.shard_id, record.data.decode())


asyncio.run(main(*sys.argv[1:]))
