"""The web service that consumes: its lifespan, over an embedded AWS."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.examples.loading import load

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws

EXAMPLE = "fastapi/app.py"


def asking(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


async def test_it_consumes_while_it_answers_and_hands_over_at_its_end(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"data", "one")
    for wanted in (1, 2):
        # The second server goes on after what the first one has handled.
        module = load(EXAMPLE)
        app = module.app
        async with app.router.lifespan_context(app), asking(app) as client:
            while (await client.get("/orders/one")).json() < 1:
                await asyncio.sleep(0.05)
            assert (await client.get("/health")).json() == "consuming"
        assert app.state.consuming.done()
        assert module.orders == {"one": 1}
        if wanted == 1:
            kinesumer_aws.put("orders", b"data", "one")


async def test_it_ends_when_it_cannot_consume(kinesumer_aws: EmbeddedAws) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    app = load(EXAMPLE).app
    with pytest.raises(Exception, match="orders"):
        async with app.router.lifespan_context(app), asking(app) as client:
            await told.wait()
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()) == (503, "consuming has ended")
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
