"""Test that the page shows and changes a real client on the embedded AWS."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from kinesumer import Config, Kinesumer, Start
from kinesumer.dead_letters import DeadLetter, open_dead_letters
from kinesumer.handlers.dead_letters.letter import decode_letter
from kinesumer.ops.dashboard.actions import ActionHandler
from kinesumer.ops.dashboard.poller import StoreFleetSource
from kinesumer.ops.dashboard.records import LetterBrowser, RecordBrowser
from kinesumer.ops.group.connect import NO_ROLES, connect
from kinesumer.ports import StateStore
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.clock import until
from tests.support.served_page import served, shown_page

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.process]

TABLE = "kinesumer-state-store"
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
QUICK = Config(heartbeat_interval_seconds=0.3, lease_duration_seconds=2)

SKIPS_3 = re.compile(r"In total: now .* behind; skips 3 records\.")
RE_READS_1 = re.compile(r"In total: now .*; re-reads 1 record since .*\.")


@asynccontextmanager
async def consuming(
    client_id: str, note: Callable[[bytes], None]
) -> AsyncIterator[None]:
    """Consume while the block runs, and call ``note`` with each record's data."""
    client = Kinesumer("billing", table=TABLE, client_id=client_id, config=QUICK)

    async def consume() -> None:
        async for record in client.consume(["orders"], start=Start.TRIM_HORIZON):
            note(record.data)

    async with client:
        task = asyncio.create_task(consume())
        yield
        task.cancel()
        await asyncio.wait({task})


class Live(NamedTuple):
    """A page of the fleet, the data that the client has read, the AWS and the store."""

    page: Page
    data: list[bytes]
    aws: EmbeddedAws
    store: StateStore


@asynccontextmanager
async def live_page(
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_reading: bool,
    target: str | None = None,
) -> AsyncIterator[Live]:
    """Show a stream when a client has read a record. The client continues or ends.

    ``target`` holds the app's dead letters.
    """
    data: list[bytes] = []
    async with AsyncExitStack() as stack:
        aws = await stack.enter_async_context(EmbeddedAws())
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_table()
        aws.create_stream("orders", 2)
        aws.put("orders", b"one")
        clients, store = await stack.enter_async_context(connect(TABLE, None))
        async with AsyncExitStack() as consumers:
            await consumers.enter_async_context(consuming("worker-1", data.append))
            await until(lambda: data == [b"one"])
            if is_reading:
                stack.push_async_exit(consumers.pop_all())
        fleet = StoreFleetSource("billing", clients, store)
        letters = None
        if target is not None:
            letters = LetterBrowser("billing", target, clients, NO_ROLES)
        actions = ActionHandler("billing", clients, store, NO_ROLES, letters)
        records = RecordBrowser("billing", clients, store, NO_ROLES)
        at = await stack.enter_async_context(
            served(fleet, actions=actions, records=records, letters=letters)
        )
        page = await stack.enter_async_context(shown_page(browser, at.url))
        yield Live(page, data, aws, store)


async def test_seeking_everything_needs_a_position_and_shows_what_is_skipped(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seek needs more than two clicks, since it may skip all records."""
    async with live_page(browser, monkeypatch, is_reading=False) as live:
        page = live.page
        for _ in range(3):
            live.aws.put("orders", b"not read")
        live.aws.advance(2)  # LATEST is a time in whole seconds
        await page.get_by_role("button", name="Seek all").click()
        dialog = page.get_by_role("dialog", name="Seek all")
        position = dialog.get_by_role("combobox")
        confirm = dialog.get_by_role("button", name="Seek all")
        status = dialog.get_by_role("status")
        await expect(position).to_have_value("")
        await expect(status).to_contain_text("Enter where to continue")
        await position.press("Enter")
        await expect(confirm).to_be_disabled()

        await position.fill("LATEST")
        await expect(confirm).to_be_disabled()
        await expect(status).to_have_text(SKIPS_3)
        skip = dialog.get_by_role("checkbox", name="I confirm the skip")
        await expect(confirm).to_be_disabled()
        await skip.check()
        await expect(confirm).to_be_enabled()
        await expect(dialog).to_contain_text("2 shards to")

        await position.fill("TRIM_HORIZON")
        await expect(confirm).to_be_disabled()
        await expect(status).to_have_text(RE_READS_1)
        await expect(confirm).to_be_enabled()
        await expect(skip).to_be_hidden()
        await position.fill("")
        await expect(confirm).to_be_disabled()
        await expect(dialog.get_by_role("listitem")).to_have_count(0)
        await expect(status).to_contain_text("Enter where to continue")

        await position.fill("LATEST")
        await position.press("Tab")
        await expect(skip).not_to_be_checked()
        await skip.check()
        await expect(confirm).to_be_enabled()
        await confirm.click()
        await expect(page.locator("#live")).to_contain_text("seeked")


async def test_records_are_decoded_filtered_and_read_on(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.ops.dashboard.records.READ_INTERVAL_SECONDS", 0.0)
    async with live_page(browser, monkeypatch, is_reading=False) as live:
        page = live.page
        entries = [Entry(b'{"total": 12345678901234567890}', "k2"), Entry(b"two", "k3")]
        for data in (b"<b>one</b>", aggregate(entries), b"\xff\x00ABC"):
            live.aws.put("orders", data, explicit_hash_key=0)
        await page.get_by_role("option", name=re.compile("^Shard 0,")).first.click()
        await page.get_by_role("button", name="Records of shard 0").click()
        dialog = page.get_by_role("dialog", name="Records of orders")
        read = dialog.get_by_role("button", name="Read", exact=True)
        items = dialog.get_by_role("list", name="Records").get_by_role("listitem")
        status = dialog.get_by_role("status")
        await expect(dialog).to_contain_text("of the five reads a second")
        await expect(items).to_have_count(0)
        await dialog.get_by_label("Order").select_option("oldest first")
        await read.click()
        await expect(status).to_contain_text("no later record yet")
        texts = await items.locator("pre").all_text_contents()
        assert texts[-4:-1] == [
            "<b>one</b>",
            '{\n  "total": 12345678901234567890\n}',
            "two",
        ]
        assert re.fullmatch(r"0000  ff 00 41 42 43 +\.\.ABC", texts[-1])
        await expect(items.nth(-2)).to_contain_text("key k3")
        await dialog.get_by_label("Binary as").select_option("base64")
        await expect(items.last.locator("pre")).to_have_text("/wBBQkM=")

        await dialog.get_by_label("Data contains").fill("tw")
        await dialog.get_by_label("Data contains").press("Enter")
        await expect(items).to_have_count(1)
        await expect(items.locator("pre")).to_have_text("two")
        await dialog.get_by_label("Data contains").fill("")
        live.aws.put("orders", b"later", explicit_hash_key=0)
        await dialog.get_by_role("button", name="Read later records").click()
        await expect(items.locator("pre")).to_have_text(["later"])
        await dialog.get_by_label("From").fill("yesterday")
        await read.click()
        await expect(dialog.get_by_role("alert")).to_contain_text("yesterday")
        await dialog.get_by_label("From").fill("2999-01-01T00:00:00Z")
        await read.click()
        await expect(dialog.get_by_role("alert")).to_contain_text("is in the future")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def position_is_stored(store: StateStore) -> bool:
    """Return whether the position of one of the stream's shards is stored."""
    found = await store.query(f"shard#billing#{ARN}", consistent=True)
    return any("sequence_number" in row for row in found)


async def test_a_client_is_paused_resumed_and_seeked_from_the_page(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.ops.dashboard.poller.MIN_INTERVAL_SECONDS", 0.2)
    async with live_page(browser, monkeypatch, is_reading=True) as live:
        page = live.page
        assert page.url.endswith("/"), "the invitation is gone"
        orders = page.get_by_role("article", name="orders")
        await expect(orders).to_contain_text("2 owned")

        await page.get_by_role("button", name="Drain worker-1").click()
        dialog = page.get_by_role("dialog", name="Drain worker-1?")
        await expect(dialog).to_contain_text("its 2 shards move")
        await dialog.get_by_role("button", name="Drain worker-1").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("last client")
        await dialog.get_by_role("button", name="Cancel").click()

        await page.get_by_role("button", name="Pause orders").click()
        dialog = page.get_by_role("dialog", name="Pause orders?")
        await expect(dialog).to_contain_text("worker-1 gives up 2 shards")
        await dialog.get_by_role("textbox").fill("a deploy")
        await dialog.get_by_role("button", name="Pause orders").click()
        await expect(orders).to_contain_text("2 paused")
        async with asyncio.timeout(30):
            while not await position_is_stored(live.store):
                await asyncio.sleep(0.05)

        await page.get_by_role("button", name="Seek orders").click()
        dialog = page.get_by_role("dialog", name="Seek orders?")
        confirm = dialog.get_by_role("button", name="Seek orders")
        await dialog.get_by_role("combobox").fill("yesterday")
        await dialog.get_by_role("combobox").press("Tab")
        await expect(dialog.get_by_role("alert")).to_contain_text("yesterday")
        await expect(confirm).to_be_disabled()
        await dialog.get_by_role("combobox").fill("TRIM_HORIZON")
        await dialog.get_by_role("combobox").press("Tab")
        await expect(dialog).to_contain_text("2 shards to TRIM_HORIZON")
        status = dialog.get_by_role("status")
        await expect(status).to_have_text(RE_READS_1)
        await confirm.click()
        await expect(page.locator("#live")).to_contain_text(re.compile("seeked"))

        assert live.data == [b"one"]
        await page.get_by_role("button", name="Resume orders").click()
        dialog = page.get_by_role("dialog", name="Resume orders?")
        await dialog.get_by_role("button", name="Resume orders").click()
        await expect(orders).to_contain_text("2 owned")
        await until(lambda: live.data == [b"one", b"one"])


async def test_dead_letters_are_listed_shown_and_put_back(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = f"file:{tmp_path / 'letters.jsonl'}"
    letter = DeadLetter(
        app="billing",
        stream_arn=ARN,
        shard_id="shardId-000000000000",
        sequence_number="7",
        partition_key="key",
        data=b"<b>again</b>",
        error="ValueError: <i>no</i>",
        traceback="Traceback: here",
        attempts=3,
        failed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    later = {"sequence_number": "8", "failed_at": datetime(2026, 1, 2, tzinfo=UTC)}
    stored = await open_dead_letters(target)
    await stored.put(letter)
    await stored.put(msgspec.structs.replace(letter, error="later", **later))
    await stored.put(msgspec.structs.replace(letter, app="another"))
    live_letters = live_page(browser, monkeypatch, is_reading=True, target=target)
    async with live_letters as live:
        page = live.page
        await page.get_by_role("button", name="Dead letters").click()
        dialog = page.get_by_role("dialog", name="Dead letters")
        items = dialog.get_by_role("listitem")
        await expect(items).to_have_count(2)
        await expect(dialog.get_by_role("status")).to_have_text(f"2 in {target}")
        await expect(items.nth(0)).to_contain_text("later")
        await expect(items.nth(1)).to_contain_text("ValueError: <i>no</i>")
        await dialog.get_by_role("button", name=f"Show letter {letter.id}").click()
        await expect(items.nth(1)).to_contain_text("<b>again</b>")
        await expect(items.nth(1)).to_contain_text("Traceback: here")

        await dialog.get_by_role("button", name=f"Put back letter {letter.id}").click()
        confirm = page.get_by_role("dialog", name=f"Put back letter {letter.id}?")
        await expect(confirm).to_contain_text("puts 1 record back into orders")
        await expect(confirm).to_contain_text(f"removed from {target}")
        await confirm.get_by_role("button", name="Put back").click()
        await until(lambda: b"<b>again</b>" in live.data)
        await dialog.get_by_role("button", name="List again").click()
        await expect(items).to_have_count(1)
        rest = (tmp_path / "letters.jsonl").read_bytes().splitlines()
        apps = [decode_letter(line).app for line in rest]
        assert apps == ["billing", "another"]
