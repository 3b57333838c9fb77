"""A heart has a thread of its own: it beats while user code blocks the loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kinesumer import Config, Kinesumer, Start
from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.session import ClientFactory
from kinesumer.model.rows import Key

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws

TABLE = "kinesumer-state-store"


async def another_beat(client_id: str) -> bool:
    """Wait for the client's next heartbeat."""
    async with ClientFactory() as clients:
        store = await open_store(clients, TABLE)
        key, seen = Key("member#app", client_id), set[object]()
        async with asyncio.timeout(10):
            while len(seen) < 3:
                row = await store.get(key)
                assert row is not None
                seen.add(row["beat"])
                await asyncio.sleep(0.05)
    return True


async def test_a_client_beats_while_user_code_blocks_its_loop(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.put("orders", b"data")
    config = Config(heartbeat_interval_seconds=0.2, lease_duration_seconds=5.0)
    made = Kinesumer("app", table=TABLE, client_id="c1", config=config)
    async with made as client:
        async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
            with ThreadPoolExecutor() as pool:
                other_loop = pool.submit(lambda: asyncio.run(another_beat("c1")))
                assert other_loop.result()  # this blocks the client's loop
            break
