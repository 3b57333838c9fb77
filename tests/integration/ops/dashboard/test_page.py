"""Test the page in a real browser: its content, and its use by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from kinesumer.model.rows import GroupRow
from tests.support.served_page import served, shown_page
from tests.support.toy_fleet import ToyFleet, arn_of, shard, small

pytestmark = pytest.mark.asyncio(loop_scope="package")


LAG_HEIGHTS = """() => {
  const canvas = document.querySelector(".space canvas");
  const context = canvas.getContext("2d");
  const [top, high] = [24 * devicePixelRatio, 72 * devicePixelRatio];
  const { data, width } = context.getImageData(0, top, canvas.width, high);
  const filled = (x) => {
    let count = 0;
    for (let y = 0; y < high; y++) {
      const place = 4 * (y * width + Math.round(x * width));
      count += data[place + 3] > 60; // its alpha: a range's tint has less
    }
    return count;
  };
  return [filled(0.375), filled(0.625)];
}"""


async def test_every_stream_has_a_band_with_lags_and_every_client_a_row(
    browser: Browser,
) -> None:
    fleet = small()
    fleet.millis[shard(2)] = 3_600_000
    fleet.report_rates({arn_of("orders"): 1240.0})
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("billing")
        orders = page.get_by_role("listbox", name="orders")
        await expect(orders.get_by_role("option")).to_have_count(4)
        label = "Shard 2, owned by worker-2, 1 h behind, 25 % of the hash keys"
        await expect(orders.get_by_role("option", name=label)).to_be_attached()
        await expect(page.get_by_role("listbox", name="audit")).to_be_visible()
        row = page.get_by_role("row", name=re.compile("worker-1.*leads"))
        await expect(row).to_contain_text("up")
        card = page.get_by_role("article", name="orders")
        await expect(card).to_contain_text(re.compile(r"1,[123]\d\d records/s"))
        current, behind = await page.evaluate(LAG_HEIGHTS)
        assert behind > 40
        assert current < 5

        await card.get_by_text("Shards as a table").click()
        rows = card.get_by_role("row")
        await expect(rows).to_have_count(5)
        await expect(rows.nth(3)).to_contain_text("worker-2")
        await expect(rows.nth(3)).to_contain_text("50 % – 75 %")


async def test_children_are_below_the_parent_that_drains_and_events_are_spoken(
    browser: Browser,
) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        parent = page.locator('[data-id="shardId-000000000001"]').first
        left, _ = fleet.split(shard(1))
        at.poller.wake()
        child = page.locator(f'[data-id="{left.shard_id}"]')
        await expect(child).to_have_attribute(
            "aria-label", re.compile("Shard 4, waiting for its parent 1")
        )
        events = page.locator("#events")
        await expect(events).to_contain_text("orders: 1 splits into 4 and 5")
        above, below = await parent.bounding_box(), await child.bounding_box()
        assert above is not None
        assert below is not None
        assert below["y"] >= above["y"] + above["height"]
        assert below["x"] == pytest.approx(above["x"], abs=1)
        assert below["width"] == pytest.approx(above["width"] / 2, abs=1)

        fleet.join("worker-3")
        fleet.plan()
        fleet.settle()
        at.poller.wake()
        await expect(events).to_contain_text("worker-3 joined")
        await expect(events).to_contain_text("moved from worker-2 to worker-3")
        live = page.get_by_role("status")
        await expect(live).to_have_attribute("aria-live", "polite")
        await expect(live).to_contain_text("worker-3 joined")


async def test_pauses_drains_and_missing_heartbeats_are_shown(browser: Browser) -> None:
    fleet = small()
    fleet.group = GroupRow("group", paused=True, pause_reason="a migration")
    fleet.change("worker-2", drained=True)
    fleet.settle()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_contain_text("Everything is paused: a migration")
        await expect(
            page.get_by_role("row", name=re.compile("worker-2"))
        ).to_contain_text("drained")
        option = page.get_by_role("option", name=re.compile("Shard 0, paused"))
        await expect(option.first).to_be_attached()
        at.clock.seconds += 4
        fleet.beat(but=["worker-1"])
        at.poller.wake()
        row = page.get_by_role("row", name=re.compile("worker-1"))
        await expect(row).to_contain_text("silent")
        await expect(problems).to_contain_text(
            "worker-1: its heartbeat has been unchanged"
        )


async def test_a_plan_by_load_has_columns_of_load_and_reasons(browser: Browser) -> None:
    fleet = ToyFleet(["worker-1", "worker-2"], {"orders": 4})
    fleet.plan_by_load({shard(0): 0.9, shard(1): 0.1, shard(2): 0.1, shard(3): 0.1})
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        clients = page.get_by_role("table", name="Clients of the app")
        for title in ("Records/s", "Bytes/s", "Handler s/s", "Work / share"):
            await expect(
                clients.get_by_role("columnheader", name=title)
            ).to_be_visible()
        row = clients.get_by_role("row", name=re.compile("worker-1"))
        await expect(row).to_contain_text("166 %")
        reasons = page.get_by_role("list", name="Why the plan is as it is")
        await expect(reasons).to_contain_text("worker-1 is the busiest client")
        await expect(reasons).to_contain_text("shardId-000000000000 is hot")
        hot = page.get_by_role("option", name=re.compile("Shard 0, .*, hot"))
        await hot.hover()
        await expect(page.locator("#tip")).to_contain_text("handler s/s, hot")
        card = page.get_by_role("article", name="orders")
        await card.get_by_text("Shards as a table").click()
        await expect(card.get_by_role("row").nth(1)).to_contain_text("owned, hot")
        await expect(card.get_by_role("columnheader", name="Bytes/s")).to_be_visible()


async def test_failures_have_a_figure_a_column_and_a_line_for_each_stream(
    browser: Browser,
) -> None:
    fleet = small()
    fleet.change(
        "worker-2",
        failures="1 1700000000 6 100 94 616 0 PaymentError 1700000001 shardId-3 4959",
        incidents="credentials 1700000000 3 - token expired",
    )
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        figures = page.get_by_role("region", name="The fleet in figures")
        await expect(figures).to_contain_text("Failures94 % of calls")
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_contain_text("last PaymentError at record 4959")
        await expect(problems).to_contain_text("worker-2: token expired: The client")
        row = page.get_by_role("row", name=re.compile("worker-2"))
        counts = "94 % of 100 calls fail, 616 dead letters in the last minute"
        await expect(row).to_contain_text(counts)
        await expect(page.get_by_role("article", name="orders")).to_contain_text(counts)
        audit = page.get_by_role("article", name="audit")
        await expect(audit).not_to_contain_text("calls fail")

        fleet.change("worker-2", failures="", incidents="")
        at.poller.wake()
        await expect(figures).not_to_contain_text("Failures")
        await expect(page.get_by_role("columnheader", name="Failures")).to_have_count(0)


async def test_the_keyboard_reaches_every_shard_and_what_is_known_of_it(
    browser: Browser,
) -> None:
    fleet = small()
    fleet.split(shard(1))
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        orders = page.get_by_role("listbox", name="orders")
        await page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the streams")
        await expect(skip).to_be_focused()
        await page.keyboard.press("Enter")
        focused = page.locator(":focus")
        for _ in range(5):
            await page.keyboard.press("Tab")
            if await focused.get_attribute("role") == "option":
                break
        stream = page.get_by_role("article").filter(has=focused)
        await expect(stream).to_have_count(1)
        await orders.get_by_role("option").first.focus()
        await page.keyboard.press("ArrowRight")
        await expect(focused).to_have_attribute("aria-label", re.compile("^Shard 1,"))
        await page.keyboard.press("ArrowDown")
        await expect(focused).to_have_attribute(
            "aria-label", re.compile("^Shard [45],")
        )
        await expect(page.locator("#tip")).to_contain_text("waiting for its parent 1")
        await page.keyboard.press("End")
        await expect(focused).to_have_attribute("aria-label", re.compile("^Shard 3,"))
        for band in await page.get_by_role("listbox").all():
            await expect(band.locator('[tabindex="0"]')).to_have_count(1)
        outline = await focused.evaluate("(e) => getComputedStyle(e).outlineStyle")
        assert outline == "solid"
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="shardId-000000000003")
        await expect(dialog).to_contain_text("owned by worker-2")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(focused).to_have_attribute("aria-label", re.compile("^Shard 3,"))


@pytest.mark.parametrize("still", [True, False])
async def test_movement_is_shown_as_it_happens_unless_that_disturbs(
    browser: Browser, still: bool
) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url, still=still) as page:
        await page.wait_for_timeout(200)
        fleet.join("worker-3")
        fleet.plan()
        fleet.settle()
        at.poller.wake()
        await expect(page.locator("#members")).to_contain_text("worker-3")
        pictures = await page.evaluate(
            """async () => {
              const canvas = document.querySelector(".space canvas");
              const seen = new Set();
              for (let i = 0; i < 60; i++) {
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
                seen.add(canvas.toDataURL());
                if (seen.size > 3) break;
              }
              return seen.size;
            }"""
        )
    assert (pictures <= 1) if still else (pictures > 3)


async def test_a_thousand_shards_are_drawn_and_reached(browser: Browser) -> None:
    fleet = ToyFleet([f"worker-{i:03d}" for i in range(100)], {"orders": 1000})
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        options = page.get_by_role("option")
        await expect(options).to_have_count(1000)
        await expect(page.locator("#totals")).to_contain_text("1,000 of 1,000")
        await expect(page.locator("#link-text")).to_have_text("live, every 4 s")
        await options.first.focus()
        await page.keyboard.press("PageDown")
        await expect(page.locator(":focus")).to_have_attribute(
            "aria-label", re.compile("^Shard 100,")
        )
        zoom = page.get_by_role("group", name="Zoom of the band")
        for _ in range(4):
            await zoom.get_by_role("button", name="Zoom in").click()
        await expect(zoom).to_contain_text("16×")
        box = await options.nth(500).bounding_box()
        assert box is not None
        assert box["width"] > 15
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 1280


async def test_narrow_ranges_have_numbers_in_the_legend_and_names_under_the_pointer(
    browser: Browser,
) -> None:
    fleet = ToyFleet([f"worker-{i:02d}" for i in range(60)], {"orders": 1000})
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        legend = page.get_by_role("list", name="Clients by index")
        await expect(legend.get_by_role("listitem")).to_have_count(60)
        await expect(legend.get_by_role("listitem").nth(42)).to_have_text("42worker-42")
        box = await page.locator(".space canvas").bounding_box()
        assert box is not None
        x = box["x"] + box["width"] * 42.5 / 60
        await page.mouse.move(x, box["y"] + 12)
        tip = page.locator("#tip")
        await expect(tip).to_contain_text("42 · worker-42")
        await expect(tip).to_contain_text("caught up · 17 shards")
        await page.mouse.move(x, box["y"] + 110)
        await expect(tip).to_contain_text("owned by worker-42")
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        await expect(page.get_by_role("option").first).to_be_attached()
        await expect(page.locator("#clients")).to_be_hidden()


async def test_the_figure_of_the_largest_lag_leads_to_its_shard(
    browser: Browser,
) -> None:
    fleet = ToyFleet(["worker-1", "worker-2"], {"orders": 500, "audit": 2})
    fleet.millis[shard(321)] = 60_000
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        totals = page.locator("#totals")
        await expect(totals).to_contain_text("1 min")
        await totals.get_by_role("button", name="shard 321 of orders").click()
        focused = page.locator(":focus")
        await expect(focused).to_have_attribute("aria-label", re.compile("^Shard 321,"))
        await expect(focused).to_be_in_viewport()
        box = await focused.bounding_box()
        assert box is not None
        assert box["width"] >= 15, "it is zoomed to a readable width"
        await expect(page.locator("#tip")).to_contain_text("1 min behind")
        fleet.millis[shard(321)] = 4_000
        at.poller.wake()
        await expect(totals).to_contain_text("caught up")
        await expect(totals.get_by_role("button")).to_have_count(0)
