"""Test what the page shows of an old state, and of a server that is gone."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from kinesumer.errors import StoreUnavailableError
from tests.support.served_page import served, shown_page
from tests.support.toy_fleet import ToyFleet, small

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_the_page_follows_again_when_the_server_is_back(browser: Browser) -> None:
    fleet = small()
    async with served(fleet) as at:
        url, port = at.url, int(at.url.rstrip("/").rpartition(":")[2])
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(url)
        await expect(page.locator("#link")).to_have_attribute("data-state", "live")
    await expect(page.locator("#link")).to_contain_text("connection lost")
    fleet.join("worker-3")
    async with served(fleet, port=port):
        await expect(page.locator("#link")).to_have_attribute("data-state", "live")
        await expect(page.locator("#members")).to_contain_text("worker-3")
    await context.close()


async def test_the_light_the_clients_and_the_cards_tell_the_age_of_an_old_state(
    browser: Browser,
) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        light, notes = page.locator("#link"), page.locator(".as-of")
        await expect(light).to_have_text("live, every 2 s")
        await expect(notes).to_have_text([""] * 4)
        fleet.trouble = StoreUnavailableError("DynamoDB doesn't answer")
        at.clock.seconds += 180
        at.poller.wake()
        await expect(light).to_have_attribute("data-state", "old")
        old = re.compile(r"as of \d\d:\d\d:\d\d, 3 min.* ago")
        await expect(light).to_have_text(old)
        # The figures, the clients and two streams.
        await expect(notes).to_have_text([old] * 4)
        await expect(page.locator("#members .age").first).to_have_text("unknown")
        await expect(page.locator("#totals")).to_contain_text("3 min ago")
        fleet.trouble = None
        at.poller.wake()
        await expect(light).to_have_attribute("data-state", "live")
        await expect(notes).to_have_text([""] * 4)


async def test_a_page_whose_server_sends_nothing_for_long_says_so(
    browser: Browser,
) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        await page.clock.install()
        await page.reload()
        light = page.locator("#link")
        await expect(light).to_have_attribute("data-state", "live")
        fleet.answers.clear()
        await page.clock.fast_forward(60_000)
        await expect(light).to_have_attribute("data-state", "old")
        await expect(page.locator(".as-of").first).to_contain_text("1 min")
        fleet.answers.set()
        await expect(light).to_have_attribute("data-state", "live")


async def test_a_page_that_has_read_nothing_says_so_until_it_can(
    browser: Browser,
) -> None:
    fleet = small()
    fleet.trouble = StoreUnavailableError("DynamoDB doesn't answer")
    async with served(fleet) as at, shown_page(browser, at.url, light="old") as page:
        await expect(page.locator("#link")).to_contain_text("nothing was read yet")
        await expect(page.locator("#members")).to_contain_text("The clients are not")
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_have_text(
            "The rows can't be read: DynamoDB doesn't answer"
        )
        await expect(page.locator("#bands")).to_have_text(
            "The app's streams are not known yet."
        )
        fleet.trouble = None
        at.poller.wake()
        await expect(problems).to_be_hidden()
        await expect(page.get_by_role("option")).to_have_count(6)


async def test_an_unknown_app_is_empty_and_nothing_is_cut_off_in_a_narrow_window(
    browser: Browser,
) -> None:
    fleet = ToyFleet([], {})
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        await expect(page.locator("#bands")).to_contain_text("No client has consumed")
        await expect(page.locator("#members")).to_contain_text("No client is alive.")
    name = "a-client-with-a-rather-long-name-" + "x" * 60
    fleet = ToyFleet([name], {"orders": 5})
    async with served(fleet) as at, shown_page(browser, at.url, width=320) as page:
        for width in (320, 768):
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width
