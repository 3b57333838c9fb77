"""A consumer that turns each batch into an Arrow table, for Polars and DuckDB.

python consume.py billing orders
"""

from __future__ import annotations

# docs: consume
import asyncio
import sys
from dataclasses import dataclass

import duckdb
import polars

from kinesumer import Kinesumer


@dataclass
class Order:
    customer: str
    total: float


async def consume(app: str, stream: str) -> None:
    async with Kinesumer(app, stop_signals=True) as client:
        records = client.consume(
            stream, start="TRIM_HORIZON", decode=Order, on_decode_error="skip"
        )
        async for batch in records.batches(columns=True):
            orders = batch.to_arrow()

            totals = (
                polars.DataFrame(orders).group_by("customer").agg(polars.sum("total"))
            )
            print("polars:", dict(totals.iter_rows()), flush=True)

            query = "SELECT shard, count(*), sum(total) FROM orders GROUP BY shard"
            print("duckdb:", duckdb.execute(query).fetchall(), flush=True)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2]))
# docs: end
