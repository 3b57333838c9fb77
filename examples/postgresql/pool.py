"""Records of many shards into PostgreSQL through a pool, each exactly once.

    psql --file tables.sql
    python pool.py billing orders payments

It stores batches as consume.py does, but those of several shards at the same time.
"""

from __future__ import annotations

# docs: consume
import asyncio
import sys

from consume import SESSION, FormerOwnerError, store
from psycopg_pool import AsyncConnectionPool

from kinesumer import Batch, Kinesumer, RetryPolicy, Start

# A batch that a later owner has taken over must not be stored by another try.
RETRIES = RetryPolicy(non_retryable=(FormerOwnerError,))


async def consume(app: str, streams: list[str]) -> None:
    """Consume until SIGTERM. Batches of one shard wait for each other, in order."""
    options = {"autocommit": True, "options": SESSION}
    pool = AsyncConnectionPool(min_size=1, max_size=8, kwargs=options, open=False)

    async def handle(batch: Batch) -> None:
        async with pool.connection() as connection:
            await store(connection, batch)

    async with pool, Kinesumer(app, stop_signals=True) as client:
        await client.run(streams, handle, start=Start.TRIM_HORIZON, retries=RETRIES)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2:]))
# docs: end
