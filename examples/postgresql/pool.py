"""Records of many shards into PostgreSQL through a pool, each exactly once.

    psql --file tables.sql
    kinesumer run pool:app

It stores batches as consume.py does, but those of several shards at the same time.
"""

from __future__ import annotations

# docs: app
from collections.abc import AsyncIterator
from typing import Annotated

from consume import SESSION, FormerOwnerError, store
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from kinesumer import App, Batch, Depends, RetryPolicy, Start


async def open_pool() -> AsyncIterator[AsyncConnectionPool]:
    """Open one pool for the process, and close it at the end."""
    options = {"autocommit": True, "options": SESSION}
    pool = AsyncConnectionPool(min_size=1, max_size=8, kwargs=options, open=False)
    async with pool:
        yield pool


async def connect(
    pool: Annotated[AsyncConnectionPool, Depends(open_pool)],
) -> AsyncIterator[AsyncConnection]:
    """Take a connection of the pool for one call of a handler."""
    async with pool.connection() as connection:
        yield connection


Connection = Annotated[AsyncConnection, Depends(connect, scope="call")]
# A batch that a later owner has taken over must not be stored by another try.
RETRIES = RetryPolicy(non_retryable=(FormerOwnerError,))
app = App("billing", streams=["orders"], start=Start.TRIM_HORIZON, retries=RETRIES)


@app.handler("orders")
async def on_orders(batch: Batch, connection: Connection) -> None:
    """Store a batch. Batches of one shard wait for each other, in order."""
    await store(connection, batch)


# docs: end
