"""A real client on the embedded AWS, watched and changed from the page."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from kinesumer import Config, Kinesumer, Start
from kinesumer.clock import SystemClock
from kinesumer.dashboard.changes import Desk
from kinesumer.dashboard.fleet import StoredFleet
from kinesumer.local import EmbeddedAws
from kinesumer.operations.reaching import NO_ROLES, reached
from tests.dashboard.conftest import served, shown_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.process]

TABLE = "kinesumer-state-store"
QUICK = Config(heartbeat_seconds=0.3, lease_seconds=2)


@asynccontextmanager
async def consuming(
    client_id: str, note: Callable[[bytes], None]
) -> AsyncIterator[None]:
    """Consume while the block runs; note what is delivered."""
    client = Kinesumer("billing", table=TABLE, client_id=client_id, config=QUICK)

    async def consume() -> None:
        async for record in client.consume(["orders"], start=Start.TRIM_HORIZON):
            note(record.data)

    async with client:
        task = asyncio.create_task(consume())
        yield
        task.cancel()
        await asyncio.wait({task})


async def test_a_client_is_paused_resumed_and_sought_from_the_page(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.dashboard.watcher.SHORTEST_SECONDS", 0.2)
    seen: list[bytes] = []
    async with EmbeddedAws() as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_table()
        aws.create_stream("orders", 2)
        aws.put("orders", b"one")
        async with (
            reached(TABLE, None) as (clients, store),
            consuming("worker-1", seen.append),
        ):
            fleet = StoredFleet("billing", clients, store, SystemClock())
            desk = Desk("billing", clients, store, NO_ROLES)
            async with (
                served(fleet, desk=desk) as at,
                shown_page(browser, at.url) as page,
            ):
                assert page.url.endswith("/"), "the invitation is gone"
                orders = page.get_by_role("article", name="orders")
                await expect(orders).to_contain_text("2 owned", timeout=15_000)

                await page.get_by_role("button", name="Drain worker-1").click()
                asked = page.get_by_role("dialog", name="Drain worker-1?")
                await expect(asked).to_contain_text("its 2 shards move")
                await asked.get_by_role("button", name="Drain worker-1").click()
                await expect(asked.get_by_role("alert")).to_contain_text("last client")
                await asked.get_by_role("button", name="Cancel").click()

                await page.get_by_role("button", name="Pause orders").click()
                asked = page.get_by_role("dialog", name="Pause orders?")
                await expect(asked).to_contain_text("worker-1 gives up 2 shards")
                await asked.get_by_role("textbox").fill("a deploy")
                await asked.get_by_role("button", name="Pause orders").click()
                await expect(orders).to_contain_text("2 paused", timeout=15_000)

                await page.get_by_role("button", name="Seek orders").click()
                asked = page.get_by_role("dialog", name="Seek orders?")
                await asked.get_by_role("combobox").fill("yesterday")
                await asked.get_by_role("combobox").press("Tab")
                await expect(asked.get_by_role("alert")).to_contain_text("yesterday")
                await asked.get_by_role("combobox").fill("TRIM_HORIZON")
                await asked.get_by_role("combobox").press("Tab")
                await expect(asked).to_contain_text("2 shards to TRIM_HORIZON")
                await asked.get_by_role("button", name="Seek orders").click()
                await expect(page.get_by_role("status")).to_contain_text(
                    re.compile("sought"), timeout=15_000
                )

                assert seen == [b"one"]
                await page.get_by_role("button", name="Resume orders").click()
                asked = page.get_by_role("dialog", name="Resume orders?")
                await asked.get_by_role("button", name="Resume orders").click()
                await expect(orders).to_contain_text("2 owned", timeout=15_000)
                async with asyncio.timeout(15):
                    while len(seen) < 2:
                        await asyncio.sleep(0.05)
    assert seen == [b"one", b"one"]
