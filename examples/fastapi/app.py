"""A web service that consumes streams beside answering requests.

    uvicorn app:app

Each worker process is a client of its own. The table and the app are those of
KINESUMER_TABLE and KINESUMER_APP.
"""

# docs: app
import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response

from kinesumer import Kinesumer, Record, Start

STREAMS = ["orders"]
orders: Counter[str | None] = Counter()


async def handle(record: Record) -> None:
    orders[record.partition_key] += 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Consume from the server's start until it shuts down."""
    name = os.environ.get("KINESUMER_APP", "billing")
    async with Kinesumer(name) as client:
        app.state.client = client
        running = client.run(STREAMS, handle, start=Start.TRIM_HORIZON)
        consuming = app.state.consuming = asyncio.create_task(running)
        consuming.add_done_callback(end_if_failed)
        yield
        # No requests arrive now. Records do, until other clients own the shards.
        await client.leave()
        await consuming


def end_if_failed(consuming: asyncio.Task[None]) -> None:
    """End the server when consuming fails, so that its supervisor restarts it."""
    if not consuming.cancelled() and consuming.exception() is not None:
        os.kill(os.getpid(), signal.SIGTERM)


app = FastAPI(lifespan=lifespan)


@app.get("/orders/{key}")
async def count(key: str) -> int:
    return orders[key]


@app.get("/lag")
async def lag() -> dict[str, dict[str, Any]]:
    """Answer with the lag of each shard that this process owns."""
    lags = app.state.client.lag()
    return {shard.shard_id: found._asdict() for shard, found in lags.items()}


@app.get("/health")
async def health(response: Response) -> str:
    """Answer 503 once nothing is consumed any more."""
    if app.state.consuming.done():
        response.status_code = 503
        return "consuming has ended"
    return "consuming"


# docs: end
