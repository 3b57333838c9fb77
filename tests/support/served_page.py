"""Start a browser, and serve pages of toy fleets."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from kinesumer.ops.dashboard.model import DashboardInfo
from kinesumer.ops.dashboard.poller import Poller
from kinesumer.ops.dashboard.server import Guard, Server, listen, serving
from tests.support.clock import PATIENCE_SECONDS, StillClock
from tests.support.toy_fleet import CountedFleet, FakeActions

ABOUT = DashboardInfo("billing", "kinesumer-state-store", "eu-central-1")
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# A browser needs these options if it runs as root in a container.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
expect.set_options(timeout=1000 * PATIENCE_SECONDS)


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
    """Start one headless Chromium for all tests. Each test opens its own context."""
    async with async_playwright() as playwright:
        path = chromium(playwright.chromium.executable_path)
        found = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        await found.close()


@pytest.fixture
def fleet() -> CountedFleet:
    return CountedFleet(["a"], {"orders": 2})


@pytest.fixture
def actions() -> FakeActions:
    return FakeActions()


@pytest_asyncio.fixture(loop_scope="package")
async def at(fleet: CountedFleet, actions: FakeActions) -> AsyncIterator[Served]:
    """Serve a fleet with changes allowed."""
    async with served(fleet, actions=actions) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="package")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Served(NamedTuple):
    """The URL of a fleet's page, and the parts of its server."""

    url: str
    poller: Poller
    guard: Guard
    clock: StillClock

    @property
    def origin(self) -> str:
        """Return the page's origin: its URL without the last slash and the token."""
        return self.url.partition("#")[0].rstrip("/")


@asynccontextmanager
async def served(
    fleet: Any,
    *,
    actions: Any = None,
    records: Any = None,
    apps: Any = None,
    letters: Any = None,
    port: int = 0,
    about: DashboardInfo = ABOUT,
) -> AsyncIterator[Served]:
    """Serve a fleet's page while the block runs.

    The arguments are the parts of a server, or behave as they do.
    """
    about = msgspec.structs.replace(
        about,
        control=actions is not None,
        records=records is not None or letters is not None,
        letters=letters is not None,
    )
    clock = StillClock(1_790_000_000.0)
    poller = Poller(about, fleet, clock)
    with listen(port) as opened:
        port = opened.getsockname()[1]
        guard = Guard(port)
        server = Server(poller, guard, actions, records, apps, letters)
        async with serving(server, poller, opened) as polling:
            link = guard.link(invites=about.control or about.records)
            yield Served(link, poller, guard, clock)
            assert not polling.done(), "polling ended"


@asynccontextmanager
async def shown_page(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    dark: bool = False,
    still: bool = True,
    is_refused: bool = False,
    light: str = "live",
) -> AsyncIterator[Page]:
    """Open a page, and fail the test if its console shows an unexpected error."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce" if still else "no-preference",
        timezone_id="UTC",
    )
    page = await context.new_page()
    page.set_default_timeout(1000 * PATIENCE_SECONDS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text))
    await page.goto(url)
    await page.locator(f"#link[data-state={light}]").wait_for()
    yield page
    await context.close()
    refusal = "403 (Forbidden)" if is_refused else "409 (Conflict)"
    assert [text for text in complaints if refusal not in text] == []
