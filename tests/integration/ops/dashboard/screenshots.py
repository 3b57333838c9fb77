"""Make the pictures of docs/dashboard.md.

    python -m tests.integration.ops.dashboard.screenshots [DIR]

The fleets and the clock are simulated, so that a picture changes only if the page has
changed.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Browser, async_playwright

from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey
from tests.support.served_page import (
    FLAGS,
    Served,
    chromium,
    served,
    shown_page,
)
from tests.support.toy_fleet import FakeRecords, ToyFleet, arn_of, shard

IMAGES = Path(__file__).parents[4] / "docs" / "img"
HOUR_SECONDS, STEP_SECONDS = 3600, 10


class Picture(NamedTuple):
    """A fleet and the browser's settings."""

    name: str
    shards: dict[str, int]
    clients: int
    width: int = 1280
    dark: bool = False


PICTURES = [
    Picture("dashboard", {"orders": 32, "payments-eu": 14, "audit": 4}, 5),
    Picture("dashboard-dark", {"orders": 5}, 3, width=960, dark=True),
    Picture("dashboard-1000", {"clicks": 1000}, 60, dark=True),
    Picture("dashboard-narrow", {"orders": 5}, 3, width=400),
]


def made(picture: Picture) -> tuple[ToyFleet, dict[ShardKey, float]]:
    """Return a picture's fleet, and each shard's usual lag."""
    names = [f"worker-{i:02d}" for i in range(picture.clients)]
    fleet = ToyFleet(names, picture.shards)
    usual = {
        key: min(fleet.random.lognormvariate(6.8, 1.1), 4_500) for key in fleet.millis
    }
    first = next(iter(fleet.streams)).rpartition("/")[2]
    usual[shard(picture.shards[first] // 2, first)] = 42_000
    if "audit" in picture.shards:
        audit = arn_of("audit")
        row = fleet.streams[audit]._replace(paused=True, pause_reason="new schema")
        fleet.streams[audit] = row
        fleet.settle()
    return fleet, usual


async def lived(fleet: ToyFleet, usual: dict[ShardKey, float], at: Served) -> None:
    """Simulate an hour of the fleet, with some events at its end."""
    states = at.poller.states()
    streams = list(fleet.streams)
    for second in range(0, HOUR_SECONDS, STEP_SECONDS):
        await looked(fleet, at, STEP_SECONDS)
        rates: dict[str, float] = {}
        for i, arn in enumerate(streams):
            wave = math.sin(second / (400 + 150 * i) + i)
            noise = fleet.random.uniform(0.93, 1.07)
            rate = (1500 - 350 * i) * (1 + 0.35 * wave) * noise
            rates[arn] = 0 if fleet.streams[arn].paused else rate
        fleet.report_rates(rates)
        burst = 1 + 9 * math.exp(-(((second - 1700) / 260) ** 2))
        for key, millis in usual.items():
            near = millis * burst * fleet.random.uniform(0.85, 1.18)
            fleet.millis[key] = int(near)
        await anext(states)
    for change in changes(fleet):
        change()
        await looked(fleet, at, 2)
        await anext(states)
    await states.aclose()


async def looked(fleet: ToyFleet, at: Served, seconds: float) -> None:
    at.clock.seconds += seconds
    fleet.beat()
    at.poller.wake()


def changes(fleet: ToyFleet) -> list[Callable[[], object]]:
    """Return functions that let a client join, move shards, and split one."""
    name = next(iter(fleet.streams)).rpartition("/")[2]
    more = [lambda: fleet.bury("worker-01")] if len(fleet.members) > 4 else []
    return [
        lambda: fleet.join("worker-new"),
        fleet.plan,
        fleet.settle,
        *more,
        lambda: fleet.split(shard(3, name)),
        fleet.plan,
        lambda: settle_some(fleet),
    ]


def settle_some(fleet: ToyFleet) -> None:
    """Let only half of the moving shards arrive, so that the fleet looks busy."""
    before = dict(fleet.shards)
    fleet.settle()
    moved = [key for key, row in fleet.shards.items() if row.owner != before[key].owner]
    for key in moved[: len(moved) // 2]:
        if before[key].owner in fleet.snapshot().sessions:
            fleet.shards[key] = before[key]


async def take(browser: Browser, picture: Picture, folder: Path) -> None:
    """Take one picture."""
    fleet, usual = made(picture)
    async with served(fleet) as at:
        await lived(fleet, usual, at)
        async with shown_page(
            browser, at.url, width=picture.width, dark=picture.dark
        ) as page:
            await page.wait_for_timeout(500)
            path = folder / f"{picture.name}.png"
            await page.screenshot(path=path, full_page=True)
    print(f"{path}: {path.stat().st_size // 1000} KB")


async def take_records(browser: Browser, folder: Path) -> None:
    """Take the picture of the record browser."""
    records = FakeRecords(*(example(number) for number in range(4)))
    async with (
        served(ToyFleet(["worker-00"], {"orders": 4}), records=records) as at,
        shown_page(browser, at.url) as page,
    ):
        await page.get_by_role("button", name="Records of orders").click()
        await page.locator("select[name=shard]").select_option("shardId-000000000000")
        await page.get_by_role("button", name="Read", exact=True).click()
        await page.locator(".records li").first.wait_for()
        path = folder / "dashboard-records.png"
        await page.get_by_role("dialog").screenshot(path=path)
    print(f"{path}: {path.stat().st_size // 1000} KB")


def example(number: int) -> Record:
    """Return an order as JSON, or every third time a binary record."""
    order = b'{"order":%d,"total":{"amount":"%d.50","currency":"EUR"}}'
    data = order % (4711 + number, 20 + number)
    if number % 3 == 2:
        data = bytes(range(200, 240))
    sequence_number = f"49{number + 1:054d}"
    return Record(sequence_number, data, f"customer-{number}", 1_790_000_000.0 + number)


async def main(folder: Path) -> None:
    """Take all pictures."""
    async with async_playwright() as playwright:
        path = chromium(playwright.chromium.executable_path)
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        for picture in PICTURES:
            await take(browser, picture, folder)
        await take_records(browser, folder)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if sys.argv[1:] else IMAGES))
