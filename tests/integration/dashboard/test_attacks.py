"""What another page in the same browser tries, and what others try without one.

The other page is of this machine, so that no browser keeps it from asking: it has the
address of ours, and another port.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.async_api import expect

from kinesumer.dashboard.auth import TOKEN_HEADER
from kinesumer.dashboard.view_model import DashboardInfo
from kinesumer.errors import CorruptRowError
from kinesumer.model.rows import GroupRow
from tests.integration.dashboard.conftest import served, shown_page
from tests.support.dashboard import CountedFleet, FakeActions
from tests.support.toy_fleet import ToyFleet, arn_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, ConsoleMessage, Page

    from kinesumer.dashboard.actions import ActionHandler

pytestmark = pytest.mark.asyncio(loop_scope="package")

PAUSE = json.dumps({"do": "pause"})
TRIES = """async ([url, change, header]) => {
  const tell = (work) => work.then((found) => `got ${found}`, (error) => error.name);
  const element = (tag, properties) => new Promise((resolve) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.onload = () => resolve("loaded");
    made.onerror = () => resolve("refused");
    document.body.append(made);
  });
  const posted = (more) =>
    fetch(url + "change", { method: "POST", body: change, ...more });
  const stated = new Promise((resolve) => {
    const states = new EventSource(url + "states");
    states.onmessage = () => resolve("loaded");
    states.onerror = () => resolve("refused");
  });
  return {
    read: await tell(fetch(url).then((answer) => answer.text())),
    states: await tell(fetch(url + "states").then((answer) => answer.status)),
    blindly: await tell(fetch(url + "states", { mode: "no-cors" })),
    changed: await tell(posted({ headers: { [header]: "guessed" } })),
    changedBlindly: await tell(posted({ mode: "no-cors" })),
    followed: await stated,
    picture: await element("img", { src: url + "states" }),
    script: await element("script", { src: url + "main.js", type: "module" }),
    style: await element("link", { href: url + "page.css", rel: "stylesheet" }),
  };
}"""
FORM = """([url, change]) => {
  const form = Object.assign(document.createElement("form"),
    { action: url + "change", method: "POST", enctype: "text/plain" });
  const field = Object.assign(document.createElement("input"), { name: change });
  form.append(field);
  document.body.append(form);
  form.submit();
}"""
HOSTILE = "<b class='taken'>b</b><img src=x onerror=alert(1)>\x1b\u202e${1}'\""
SHOWN = "<b class='taken'>b</b><img src=x onerror=alert(1)>\\u{1b}\\u{202e}${1}'\""
PATHS = (
    "/../guard.py",
    "/%2e%2e/guard.py",
    "/%2e%2e%2fguard.py",
    "/..%5cguard.py",
    "//etc/passwd",
    "/static/../../server.py",
    "/%00",
    "/index.html%00.js",
    "http://127.0.0.1/../guard.py",
)
FRAME = """(url) => document.body.append(
  Object.assign(document.createElement("iframe"), { src: url }))"""


class Siege(NamedTuple):
    """Our server, and a foreign page that is open in the browser."""

    url: str
    page: Page
    fleet: CountedFleet
    desk: FakeActions

    def is_unharmed(self) -> bool:
        """Return whether nothing was changed and the fleet wasn't shown."""
        return self.desk.done == [] and self.fleet.looks == 0


@asynccontextmanager
async def besieged(browser: Browser, host: str = "127.0.0.1") -> AsyncIterator[Siege]:
    """Serve a fleet with changes allowed, and open another server's page."""
    fleet, desk = CountedFleet(["a"], {"orders": 2}), FakeActions()
    theirs = web.Application()
    theirs.router.add_get("/", _empty)
    runner = web.AppRunner(theirs)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with served(fleet, actions=cast("ActionHandler", desk)) as at:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"http://{host}:{port}/")
        yield Siege(at.url.partition("#")[0], page, fleet, desk)
        await context.close()
    await runner.cleanup()


async def _empty(_: web.Request) -> web.Response:
    return web.Response(text="<!doctype html><body></body>", content_type="text/html")


def _of_frames(message: ConsoleMessage) -> bool:
    return "frame-ancestors" in message.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_another_page_reads_nothing_and_changes_nothing(
    browser: Browser, host: str
) -> None:
    async with besieged(browser, host) as siege:
        found = await siege.page.evaluate(TRIES, [siege.url, PAUSE, TOKEN_HEADER])
        assert {found[name] for name in ("read", "states", "changed")} == {"TypeError"}
        others = {"followed", "picture", "script", "style"}
        assert {found[name] for name in others} == {"refused"}
        await asyncio.sleep(0.1)
        assert siege.is_unharmed()


async def test_a_form_of_another_page_changes_nothing(browser: Browser) -> None:
    async with besieged(browser) as siege:
        async with siege.page.expect_navigation() as navigated:
            await siege.page.evaluate(FORM, [siege.url, PAUSE])
        answer = await navigated.value
        assert answer is not None
        assert answer.status == 403
        assert siege.is_unharmed()


async def test_no_page_frames_ours_to_have_its_buttons_clicked(
    browser: Browser,
) -> None:
    async with besieged(browser) as siege:
        async with siege.page.expect_console_message(_of_frames):
            await siege.page.evaluate(FRAME, siege.url)
        await asyncio.sleep(0.1)
        assert siege.is_unharmed()


async def test_a_link_on_another_page_may_open_our_page(
    browser: Browser,
) -> None:
    async with besieged(browser) as siege:
        await siege.page.evaluate("(url) => { location.href = url; }", siege.url)
        await siege.page.locator("#link[data-state=live]").wait_for()


async def test_our_page_under_one_name_is_foreign_under_the_other(
    browser: Browser,
) -> None:
    async with besieged(browser) as siege:
        other = siege.url.replace("127.0.0.1", "localhost")
        headers = {"Origin": siege.url.rstrip("/")}
        answer = await siege.page.request.get(f"{other}states", headers=headers)
        assert answer.status == 403


async def raw(url: str, *lines: str) -> bytes:
    """Send a raw request, which client libraries would reject, and read the head."""
    port = urlsplit(url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head


async def test_only_the_pages_own_files_are_served(browser: Browser) -> None:
    async with besieged(browser) as siege:
        host = f"Host: {urlsplit(siege.url).netloc}"
        for path in PATHS:
            head = await raw(siege.url, f"GET {path} HTTP/1.1", host)
            assert head.split()[1] in (b"400", b"404"), path


async def test_only_a_post_changes_anything(browser: Browser) -> None:
    async with besieged(browser) as siege:
        headers = {"Origin": siege.url.rstrip("/")}
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
            for path in ("change", "preview", "token", "change?do=pause"):
                answer = await siege.page.request.fetch(
                    siege.url + path, method=method, data=PAUSE, headers=headers
                )
                assert answer.status in (404, 405)
        assert siege.is_unharmed()


async def test_two_host_headers_or_none_are_rejected(browser: Browser) -> None:
    async with besieged(browser) as siege:
        ours = f"Host: {urlsplit(siege.url).netloc}"
        for hosts in ([], ["Host: evil.example", ours], [ours, "Host: evil.example"]):
            head = await raw(siege.url, "GET / HTTP/1.1", *hosts)
            assert head.split()[1] in (b"400", b"403")
        head = await raw(siege.url, "GET http://evil.example/ HTTP/1.1", ours)
        assert b"Access-Control" not in head


async def test_request_data_comes_back_as_text_only(browser: Browser) -> None:
    async with besieged(browser) as siege:
        origin = siege.url.rstrip("/")
        sent: Any = json.dumps({"invitation": 1, "<script>alert(1)</script>": 2})
        for path in ("token", "%3Cscript%3Ealert(1)%3C/script%3E"):
            answer = await siege.page.request.post(
                siege.url + path, data=sent, headers={"Origin": origin}
            )
            assert answer.status >= 400
            assert not answer.headers["content-type"].startswith("text/html")


async def test_row_values_are_shown_as_text_everywhere(browser: Browser) -> None:
    fleet = ToyFleet([HOSTILE], {HOSTILE: 2, "orders": 2})
    fleet.group = GroupRow("group", paused=True, pause_reason=HOSTILE)
    fleet.change(HOSTILE, label=HOSTILE, state=HOSTILE)
    for key, row in fleet.shards.items():
        if key.stream_arn == arn_of("orders"):
            fleet.shards[key] = row._replace(paused=True, pause_reason=HOSTILE)
    about = DashboardInfo(HOSTILE, HOSTILE, HOSTILE)
    async with (
        served(fleet, about=about) as at,
        shown_page(browser, at.url) as page,
    ):
        await page.evaluate("() => { window.untaken = document.title; }")
        fleet.trouble = CorruptRowError(HOSTILE)
        at.poller.wake()
        await expect(page.locator("#notices")).to_contain_text("so this state is old")
        fleet.trouble = None
        fleet.join(f"another {HOSTILE}")
        at.poller.wake()
        await expect(page.locator("#events")).to_contain_text("another")
        for option in await page.get_by_role("option").all():
            await option.click()
            await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        for tables in await page.get_by_text("Shards as a table").all():
            await tables.click()
        await expect(page.locator("body")).to_contain_text(SHOWN)
        assert await page.locator(".taken, main img, body script").count() == 0
        told = await page.evaluate("document.body.innerText")
        assert "\x1b" not in told
        assert "\u202e" not in told
        assert await page.title() == await page.evaluate("untaken")
