"""A browser, and pages of toy fleets."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright

from kinesumer.dashboard.auth import Guard
from kinesumer.dashboard.poller import Poller
from kinesumer.dashboard.server import Server, listen, serving
from kinesumer.dashboard.view_model import DashboardInfo
from tests.support.toy_fleet import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from kinesumer.dashboard.actions import ActionHandler
    from kinesumer.dashboard.poller import FleetSource

ABOUT = DashboardInfo("billing", "kinesumer-state-store", "eu-central-1")
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
"""The options that a browser needs in a container, as root."""


def chromium(playwrights_own: str) -> str:
    """Return the path of an installed Chromium. Skips the test if there is none."""
    paths = [path for name in NAMES if (path := shutil.which(name))]
    if not paths and Path(playwrights_own).exists():
        return playwrights_own
    if not paths:
        pytest.skip("no Chromium here: apt-get install chromium (needs root)")
    return paths[0]


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    """One headless Chromium for all tests; each opens its own context."""
    async with async_playwright() as playwright:
        path = chromium(playwright.chromium.executable_path)
        found = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        await found.close()


class Served(NamedTuple):
    """The page of a fleet, and its server's parts."""

    url: str
    poller: Poller
    guard: Guard
    clock: Clock


@asynccontextmanager
async def served(
    fleet: FleetSource,
    *,
    actions: ActionHandler | None = None,
    port: int = 0,
    about: DashboardInfo = ABOUT,
) -> AsyncIterator[Served]:
    """Serve a fleet's page while the block runs."""
    about = about._replace(control=actions is not None)
    clock = Clock()
    poller = Poller(about, fleet, clock)
    with listen(port) as opened:
        port = opened.getsockname()[1]
        guard = Guard(port)
        async with serving(Server(poller, guard, actions), poller, opened) as polling:
            yield Served(guard.link(actions is not None), poller, guard, clock)
            assert not polling.done(), "polling ended"


@asynccontextmanager
async def shown_page(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    dark: bool = False,
    still: bool = True,
) -> AsyncIterator[Page]:
    """Open a page; its console errors fail the test."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce" if still else "no-preference",
        timezone_id="UTC",
    )
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text))
    await page.goto(url)
    await page.locator("#link[data-state=live]").wait_for()
    yield page
    await context.close()
    refused = [text for text in complaints if "409 (Conflict)" in text]
    assert complaints == refused
