"""Test what a person does on the page: records, seeks, links, tables and apps."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, expect

from kinesumer.errors import KinesumerError, StoreUnavailableError
from kinesumer.model.records import Record
from kinesumer.ops.dashboard.records import RecordsRequest
from kinesumer.ops.group.snapshot import AppSummary, apps_report
from tests.support.served_page import served, shown_page
from tests.support.toy_fleet import FakeRecords, arn_of, shard, small

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_records_of_all_shards_come_newest_first_and_are_downloaded(
    browser: Browser,
) -> None:
    class ShardRecords(FakeRecords):
        """Has records in each shard; a higher shard has the newer ones."""

        async def find(self, request: RecordsRequest) -> dict[str, Any]:
            number = int(request.shard[-1])
            first, count = 10 * number + 1, 4 if request.start else 1
            self.records = tuple(
                Record(str(n), b"\x00%d" % number, "key", 1e9 + n)
                for n in range(first, first + count)
            )
            return await super().find(request)

    fake = ShardRecords()
    async with served(small(), records=fake) as at, shown_page(browser, at.url) as page:
        card = page.get_by_role("article", name="orders")
        await card.get_by_role("button", name="Records").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Read", exact=True).click()
        items = dialog.get_by_role("listitem")
        await expect(items).to_have_count(4)
        shards = [f"shard {number}" for number in range(4)]
        await expect(items).to_contain_text(shards[::-1])
        await expect(dialog.get_by_role("status")).to_contain_text("4 of 28 records")
        await dialog.get_by_label("Order").select_option("oldest first")
        await expect(items).to_contain_text(shards)
        async with page.expect_download() as download:
            await dialog.get_by_role("button", name="Read and download").click()
        saved = await (await download.value).path()
        rows = [json.loads(line) for line in saved.read_text().splitlines()]
        assert [b64decode(row["data"]) for row in rows] == [
            b"\x00%d" % number for number in range(4)
        ]
        # From a start on, what was left out comes with the later records.
        await dialog.get_by_label("From").fill("1h")
        await dialog.locator("select[name=limit]").select_option("10")
        fake.requests.clear()
        await dialog.get_by_role("button", name="Read", exact=True).click()
        await expect(items).to_have_count(10)
        assert {request.start for request in fake.requests} == {"1h"}
        fake.requests.clear()
        later = dialog.get_by_role("button", name="Read later records")
        await later.click()
        await expect(later).to_be_enabled()
        starts = {request.shard[-1]: request.start for request in fake.requests}
        assert starts == {"0": "99", "1": "99", "2": "22", "3": "1h"}
        await dialog.get_by_label("From").fill("")
        await dialog.get_by_label("Shard").select_option("shardId-000000000002")
        await dialog.get_by_role("button", name="Read", exact=True).click()
        await expect(items).to_have_count(1)


async def test_a_link_leads_to_a_shard(browser: Browser) -> None:
    async with served(small()) as at, shown_page(browser, at.url) as page:
        await page.get_by_role("option", name="Shard 2,").first.press("Enter")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("link", name="Link to this shard").click()
        async with shown_page(browser, page.url) as other:
            title = other.get_by_role("dialog").get_by_role("heading")
            await expect(title).to_have_text("shardId-000000000002")


async def test_tables_are_sorted_by_the_chosen_column(browser: Browser) -> None:
    fleet = small()
    for number, lag in enumerate((7_000, 90_000, 0, 30_000)):
        fleet.millis[shard(number)] = lag
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        card = page.get_by_role("article", name="orders")
        await card.get_by_text("Shards as a table").click()
        buttons = card.get_by_role("button", name=re.compile("^Show shard"))
        head = card.get_by_role("columnheader", name="Lag")
        for order, expected in (
            ("descending", "1302"),
            ("ascending", "2031"),
            (None, "0123"),
        ):
            await head.get_by_role("button").click()
            if order:
                await expect(head).to_have_attribute("aria-sort", order)
            names = await buttons.all_text_contents()
            assert "".join(name[-1] for name in names) == expected
        await head.get_by_role("button").press("Enter")
        third = buttons.nth(2)
        await third.focus()
        fleet.millis[shard(0)] = 3_600_000
        at.poller.wake()
        await expect(buttons.nth(0)).to_have_text(shard(0).shard_id)
        await expect(buttons.nth(0)).to_be_focused()
        await page.get_by_role("button", name="Client", exact=True).dblclick()
        rows = page.locator("#members tbody tr")
        await expect(rows.first).to_contain_text("worker-2")


NAMELESS = """() => [...document.querySelectorAll("button, [tabindex], a, img")]
  .filter((element) => !(element.ariaLabel || element.alt === ""
    || element.textContent.trim()
    || element.getAttribute("aria-labelledby")))
  .map((element) => element.outerHTML)"""


async def test_a_link_gives_one_browser_buttons_which_all_have_names(
    browser: Browser,
) -> None:
    async with served(small(), actions=object()) as at:
        async with shown_page(browser, at.url) as page:
            pause = page.get_by_role("button", name="Pause orders")
            await expect(pause).to_be_visible()
            assert "token" not in page.url
            await page.reload()
            await expect(pause).to_be_visible()
            await page.get_by_text("Shards as a table").first.click()
            assert await page.evaluate(NAMELESS) == []
            names = [
                await button.get_attribute("aria-label")
                for button in await page.locator("#members tbody button").all()
            ]
            assert names == ["Drain worker-1", "Drain worker-2"]
        async with shown_page(browser, at.url, is_refused=True) as page:
            mode = page.locator("#mode")
            await expect(mode).to_contain_text("this link was used before")
            await expect(page.get_by_role("listbox", name="orders")).to_be_visible()
            await expect(page.get_by_role("button", name="Pause orders")).to_have_count(
                0
            )


async def test_all_apps_of_the_table_are_on_one_page(browser: Browser) -> None:
    class FakeApps:
        """Lists two apps, of which one has a hostile name, or raises an error."""

        trouble: KinesumerError | None = None

        async def read(self) -> bytes:
            if self.trouble is not None:
                raise self.trouble
            arns = [arn_of("orders"), arn_of("audit")]
            apps = [
                AppSummary("billing", 2, arns, 8, 0, False, "", "2026-01-01"),
                AppSummary("<b>evil", 0, arns[:1], 4, 3, True, "9 dead letters", ""),
            ]
            return msgspec.json.encode(apps_report("state", apps))

    apps = FakeApps()
    async with served(small(), apps=apps) as at, shown_page(browser, at.url) as page:
        await page.clock.install()
        await page.get_by_role("link", name="all apps").click()
        await expect(page.locator("#where")).to_have_text("table state · 2 apps")
        rows = page.get_by_role("row")
        await expect(rows.nth(1)).to_contain_text("orders, audit")
        await expect(rows.nth(2)).to_contain_text("paused, 9 dead letters")
        await expect(rows.nth(2).locator(".bad")).to_have_text("3")
        await page.get_by_role("button", name="Unread").click()
        await expect(rows.nth(1)).to_contain_text("<b>evil")
        apps.trouble = StoreUnavailableError("DynamoDB doesn't answer")
        await page.clock.fast_forward(60_000)
        trouble = page.get_by_role("alert")
        await expect(trouble).to_contain_text("DynamoDB doesn't answer")
        await expect(trouble).to_contain_text("what was read 1 min")
        await expect(rows).to_have_count(3)
