"""Records of streams into PostgreSQL, each exactly once.

    psql --file tables.sql
    python consume.py billing orders payments

The database is the one that libpq's variables name (PGHOST, PGDATABASE, PGUSER …), the
state store's table is that of KINESUMER_TABLE. Start it as often as you like.
"""

from __future__ import annotations

import asyncio
import sys

# docs: store
import psycopg

from kinesumer import Batch, Config, Kinesumer, Position, Record, Start

SESSION = (
    # A commit must survive a crash of the server: the group does not deliver its
    # records again.
    " -c synchronous_commit=on"
    # A process that is stopped in a transaction must not keep its locks,
    " -c idle_in_transaction_session_timeout=10s"
    # and no other process waits longer than this for a lock.
    " -c lock_timeout=30s"
)

CLAIM = """
    INSERT INTO kinesumer_positions AS known (app, stream_arn, shard_id, epoch)
    VALUES (%(app)s, %(stream_arn)s, %(shard_id)s, %(epoch)s)
    ON CONFLICT (app, stream_arn, shard_id)
    DO UPDATE SET epoch = excluded.epoch WHERE known.epoch <= excluded.epoch
    RETURNING position
"""
ADVANCE = """
    UPDATE kinesumer_positions SET position = %(position)s
    WHERE (app, stream_arn, shard_id) = (%(app)s, %(stream_arn)s, %(shard_id)s)
"""
OUTPUT = "INSERT INTO orders (partition_key, arrived_at, data) VALUES (%s, %s, %s)"
CONFIG = Config()


class FormerOwnerError(Exception):
    """A later owner of the shard has written: this process must write nothing more."""


async def store(connection: psycopg.AsyncConnection, batch: Batch) -> None:
    """Store a batch's output and its position in one transaction.

    What is stored already is skipped. Raises FormerOwnerError.
    """
    fence = batch.fence
    shard = {
        "app": fence.app,
        "stream_arn": fence.stream_arn,
        "shard_id": fence.shard_id,
        "epoch": fence.epoch,
    }
    async with connection.transaction():
        # This locks the shard's row until the transaction ends. Another process waits
        # here, and then reads the position that this one stored.
        found = await (await connection.execute(CLAIM, shard)).fetchone()
        if found is None:
            raise FormerOwnerError(f"epoch {fence.epoch} of {fence.shard} is over")
        stored = Position.of_text(found[0]) if found[0] else None
        new = [r for r in batch.records if stored is None or r.position > stored]
        if new:
            await write(connection, new)
            end = {**shard, "position": new[-1].position.text}
            await connection.execute(ADVANCE, end)


async def write(connection: psycopg.AsyncConnection, records: list[Record]) -> None:
    """Write what is made of records: only here, only in the transaction."""
    async with connection.cursor() as cursor:
        rows = [(r.partition_key, r.arrived_at, r.data) for r in records]
        await cursor.executemany(OUTPUT, rows)


async def consume(app: str, streams: list[str]) -> None:
    """Consume until SIGTERM. Whatever fails ends the process: start it again."""
    connection = await psycopg.AsyncConnection.connect(autocommit=True, options=SESSION)
    client = Kinesumer(app, config=CONFIG, stop_signals=True)
    async with connection, client:
        records = client.consume(streams, start=Start.TRIM_HORIZON)
        async for batch in records.batches():
            await store(connection, batch)
            # Asking for the next batch marks this one as done: it is stored by then.


# docs: end

if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2:]))
