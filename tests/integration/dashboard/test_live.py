"""A real client on the embedded AWS, shown and changed by the page."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from kinesumer import Config, Kinesumer, Start
from kinesumer.admin.connect import NO_ROLES, connect
from kinesumer.dashboard.actions import ActionHandler
from kinesumer.dashboard.poller import StoreFleetSource
from kinesumer.local import EmbeddedAws
from kinesumer.runtime.clock import SystemClock
from tests.integration.dashboard.conftest import served, shown_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from playwright.async_api import Browser

    from kinesumer.ports import StateStore

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.process]

TABLE = "kinesumer-state-store"
QUICK = Config(heartbeat_interval_seconds=0.3, lease_duration_seconds=2)


@asynccontextmanager
async def consuming(
    client_id: str, note: Callable[[bytes], None]
) -> AsyncIterator[None]:
    """Consume while the block runs; record the deliveries."""
    client = Kinesumer("billing", table=TABLE, client_id=client_id, config=QUICK)

    async def consume() -> None:
        async for record in client.consume(["orders"], start=Start.TRIM_HORIZON):
            note(record.data)

    async with client:
        task = asyncio.create_task(consume())
        yield
        task.cancel()
        await asyncio.wait({task})


async def test_seeking_everything_needs_a_position_and_shows_what_is_skipped(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seek needs more than two clicks, since it may skip all records."""
    seen: list[bytes] = []
    async with EmbeddedAws() as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_table()
        aws.create_stream("orders", 2)
        aws.put("orders", b"one")
        async with consuming("worker-1", seen.append):
            await until(lambda: seen == [b"one"])
        for _ in range(3):
            aws.put("orders", b"not read")
        aws.advance(2)  # LATEST is a whole second
        async with connect(TABLE, None) as (clients, store):
            fleet = StoreFleetSource("billing", clients, store, SystemClock())
            desk = ActionHandler("billing", clients, store, NO_ROLES)
            async with (
                served(fleet, actions=desk) as at,
                shown_page(browser, at.url) as page,
            ):
                await page.get_by_role("button", name="Seek all").click()
                asked = page.get_by_role("dialog", name="Seek all")
                place = asked.get_by_role("combobox")
                confirm = asked.get_by_role("button", name="Seek all")
                told = asked.get_by_role("status")
                await expect(place).to_have_value("")
                await expect(told).to_contain_text("Enter where to continue")
                await place.press("Enter")
                await expect(confirm).to_be_disabled()

                await place.fill("LATEST")
                await expect(confirm).to_be_disabled()
                await expect(told).to_have_text("In total: skips 3 records.")
                await expect(confirm).to_be_enabled()
                await expect(asked).to_contain_text("2 shards to")

                await place.fill("TRIM_HORIZON")
                await expect(confirm).to_be_disabled()
                await expect(told).to_have_text("In total: repeats 1 record.")
                await place.fill("")
                await expect(confirm).to_be_disabled()
                await expect(asked.get_by_role("listitem")).to_have_count(0)
                await expect(told).to_contain_text("Enter where to continue")

                await place.fill("LATEST")
                await place.press("Tab")
                await expect(confirm).to_be_enabled()
                if path := os.environ.get("KINESUMER_SCREENSHOT"):
                    await page.screenshot(path=path)
                await confirm.click()
                await expect(page.locator("#live")).to_contain_text("seeked")


async def until(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(30):
        while not happened():
            await asyncio.sleep(0.05)


async def position_is_stored(store: StateStore) -> bool:
    """Return whether a shard of the stream was released or committed."""
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    found = await store.query(f"shard#billing#{arn}", consistent=True)
    return any("sequence_number" in row for row in found)


async def test_a_client_is_paused_resumed_and_seeked_from_the_page(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.dashboard.poller.MIN_INTERVAL_SECONDS", 0.2)
    seen: list[bytes] = []
    async with EmbeddedAws() as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_table()
        aws.create_stream("orders", 2)
        aws.put("orders", b"one")
        async with (
            connect(TABLE, None) as (clients, store),
            consuming("worker-1", seen.append),
        ):
            fleet = StoreFleetSource("billing", clients, store, SystemClock())
            desk = ActionHandler("billing", clients, store, NO_ROLES)
            async with (
                served(fleet, actions=desk) as at,
                shown_page(browser, at.url) as page,
            ):
                assert page.url.endswith("/"), "the invitation is gone"
                orders = page.get_by_role("article", name="orders")
                await expect(orders).to_contain_text("2 owned", timeout=15_000)
                await until(lambda: seen == [b"one"])

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
                async with asyncio.timeout(30):
                    while not await position_is_stored(store):
                        await asyncio.sleep(0.05)

                await page.get_by_role("button", name="Seek orders").click()
                asked = page.get_by_role("dialog", name="Seek orders?")
                confirm = asked.get_by_role("button", name="Seek orders")
                await asked.get_by_role("combobox").fill("yesterday")
                await asked.get_by_role("combobox").press("Tab")
                await expect(asked.get_by_role("alert")).to_contain_text("yesterday")
                await expect(confirm).to_be_disabled()
                await asked.get_by_role("combobox").fill("TRIM_HORIZON")
                await asked.get_by_role("combobox").press("Tab")
                await expect(asked).to_contain_text("2 shards to TRIM_HORIZON")
                told = asked.get_by_role("status")
                await expect(told).to_have_text("In total: repeats 1 record.")
                await confirm.click()
                await expect(page.locator("#live")).to_contain_text(
                    re.compile("seeked"), timeout=15_000
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
