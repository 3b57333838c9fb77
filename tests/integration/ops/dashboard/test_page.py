"""Test the page in a real browser: its content, and its use by keyboard."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from playwright.async_api import expect

from kinesumer.errors import StoreUnavailableError
from kinesumer.model.loads import Load, LoadReport
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.rows import Deaths, GroupRow
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group.apps import AppSummary, report
from kinesumer.wire.loads import load_text
from tests.integration.ops.dashboard.conftest import served, shown_page
from tests.support.dashboard import FakeActions, FakeRecords
from tests.support.toy_fleet import ToyFleet, arn_of

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from kinesumer.errors import KinesumerError
    from kinesumer.ops.dashboard.actions import Action, ActionHandler, Preview
    from kinesumer.ops.dashboard.apps import AppList
    from kinesumer.ops.dashboard.records import (
        RecordBrowser,
        RecordsAnswer,
        RecordsRequest,
    )

pytestmark = pytest.mark.asyncio(loop_scope="package")


def shard(number: int, stream: str = "orders") -> ShardKey:
    return ShardKey(arn_of(stream), f"shardId-{number:012d}")


def small() -> ToyFleet:
    return ToyFleet(["worker-1", "worker-2"], {"orders": 4, "audit": 2})


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
    fleet.rates[arn_of("orders")] = 1240
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
        await expect(card).to_contain_text("1,240 records/s")
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
        at.clock.time = 4
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


async def test_other_plans_have_no_columns_of_load(browser: Browser) -> None:
    async with served(small()) as at, shown_page(browser, at.url) as page:
        clients = page.get_by_role("table", name="Clients of the app")
        await expect(clients).to_contain_text("Heartbeat")
        await expect(clients).not_to_contain_text("Records/s")
        await expect(page.locator("ul.plan")).to_be_hidden()


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


async def test_isolation_and_a_poison_record_are_events(browser: Browser) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        events = page.locator("#events")
        fleet.shards[shard(1)] = fleet.shards[shard(1)]._replace(deaths=Deaths(3))
        at.poller.wake()
        await expect(events).to_contain_text("shard 1 read one record at a time")
        poison = Deaths(5, poison=Position("71"))
        fleet.shards[shard(1)] = fleet.shards[shard(1)]._replace(deaths=poison)
        at.poller.wake()
        await expect(events).to_contain_text("record 71 of shard 1 kills its readers")
        stopped = page.get_by_role("option", name=re.compile("Shard 1, .*, stopped at"))
        await expect(stopped).to_be_attached()
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_contain_text(
            "record 71 of shardId-000000000001 killed the"
        )


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
    async with (
        served(fleet) as at,
        shown_page(browser, at.url, still=still) as page,
    ):
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


async def test_a_shard_without_an_owner_is_called_unassigned(browser: Browser) -> None:
    fleet = small()
    fleet.own(shard(0), None)
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        card = page.get_by_role("article", name="orders")
        label = re.compile("^Shard 0, unassigned, planned for worker-1,")
        await expect(card.get_by_role("option", name=label)).to_be_attached()
        await expect(card).to_contain_text("1 unassigned")
        await card.get_by_text("Shards as a table").click()
        await expect(card.get_by_role("row").nth(1)).to_contain_text("unassigned")


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


async def test_records_of_all_shards_come_newest_first_and_are_downloaded(
    browser: Browser,
) -> None:
    class ShardRecords(FakeRecords):
        """Has records in each shard; a higher shard has the newer ones."""

        async def find(self, request: RecordsRequest) -> RecordsAnswer:
            number = int(request.shard[-1])
            first, count = 10 * number + 1, 4 if request.start else 1
            self.records = tuple(
                Record(str(n), b"\x00%d" % number, "key", 1e9 + n)
                for n in range(first, first + count)
            )
            return await super().find(request)

    fake = ShardRecords()
    async with (
        served(small(), records=cast("RecordBrowser", fake)) as at,
        shown_page(browser, at.url) as page,
    ):
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


async def test_a_seek_says_for_how_long_it_has_been_counting(
    browser: Browser,
) -> None:
    is_counted = asyncio.Event()

    class SlowActions(FakeActions):
        async def preview(self, change: Action) -> Preview:
            await is_counted.wait()
            return await super().preview(change)

    async with (
        served(small(), actions=cast("ActionHandler", SlowActions())) as at,
        shown_page(browser, at.url) as page,
    ):
        await page.get_by_role("button", name="Seek orders").click()
        dialog = page.get_by_role("dialog")
        await dialog.locator("input[name=to]").fill("1h")
        status = dialog.get_by_role("status")
        await expect(status).to_have_text(re.compile(r"^Counting .* … \d\.\d s$"))
        is_counted.set()
        await expect(status).to_have_text("In total: skips 3 records.")


async def test_a_link_leads_to_a_shard(browser: Browser) -> None:
    async with served(small()) as at, shown_page(browser, at.url) as page:
        await page.get_by_role("option", name="Shard 2,").first.press("Enter")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("link", name="Link to this shard").click()
        async with shown_page(browser, page.url) as other:
            title = other.get_by_role("dialog").get_by_role("heading")
            await expect(title).to_have_text("shardId-000000000002")


async def test_a_first_look_shows_the_rates_that_clients_report(
    browser: Browser,
) -> None:
    fleet = small()
    loads = LoadReport(arn_of("orders"), 0, 4, Load(1e5, 250.0, 0.1))
    arns = fleet.members["worker-1"].streams
    fleet.change("worker-1", load=load_text([loads], arns))
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        await expect(page.locator("#totals")).to_contain_text("Records a second246")


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


async def test_the_page_follows_again_when_the_server_is_back(
    browser: Browser,
) -> None:
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


NAMELESS = """() => [...document.querySelectorAll("button, [tabindex], a, img")]
  .filter((element) => !(element.ariaLabel || element.alt === ""
    || element.textContent.trim()
    || element.getAttribute("aria-labelledby")))
  .map((element) => element.outerHTML)"""


async def test_a_link_gives_one_browser_buttons_which_all_have_names(
    browser: Browser,
) -> None:
    async with served(small(), actions=cast("ActionHandler", object())) as at:
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
            return msgspec.json.encode(report("state", apps))

    apps = FakeApps()
    async with (
        served(small(), apps=cast("AppList", apps)) as at,
        shown_page(browser, at.url) as page,
    ):
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


async def test_an_error_is_shown_and_the_last_state_stays(browser: Browser) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        fleet.trouble = StoreUnavailableError("DynamoDB doesn't answer")
        at.poller.wake()
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_contain_text("DynamoDB doesn't answer")
        await expect(page.get_by_role("option")).to_have_count(6)
        fleet.trouble = None
        at.poller.wake()
        await expect(problems).to_be_hidden()


async def test_the_light_the_clients_and_the_cards_tell_the_age_of_an_old_state(
    browser: Browser,
) -> None:
    fleet = small()
    async with served(fleet) as at, shown_page(browser, at.url) as page:
        light, notes = page.locator("#link"), page.locator(".as-of")
        await expect(light).to_have_text("live, every 2 s")
        await expect(notes).to_have_text([""] * 4)
        fleet.trouble = StoreUnavailableError("DynamoDB doesn't answer")
        at.clock.time = 180
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
