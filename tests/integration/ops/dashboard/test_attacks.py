"""Test that the server resists attacks of other pages and of other programs.

The other page has the same IP address as our page, but another port. For browsers they
are the same site, so only the server can reject the requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, web
from playwright.async_api import Browser, ConsoleMessage, Page, expect

from kinesumer.errors import CorruptRowError
from kinesumer.model.rows import GroupRow
from kinesumer.ops.dashboard.model import DashboardInfo
from kinesumer.ops.dashboard.server import TOKEN_HEADER
from tests.support.served_page import Served, served, shown_page
from tests.support.toy_fleet import CountedFleet, FakeActions, ToyFleet, shard

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


class Attack(NamedTuple):
    """Our server, and a foreign page that is open in the browser."""

    url: str
    page: Page
    fleet: CountedFleet
    actions: FakeActions

    def is_unharmed(self) -> bool:
        """Return whether the fleet was neither read nor changed."""
        return self.actions.done == [] and self.fleet.reads == 0


@asynccontextmanager
async def attacked_server(
    browser: Browser, host: str = "127.0.0.1"
) -> AsyncIterator[Attack]:
    """Serve a fleet with changes allowed, and open another server's page."""
    fleet, actions = CountedFleet(["a"], {"orders": 2}), FakeActions()
    theirs = web.Application()
    theirs.router.add_get("/", _empty)
    runner = web.AppRunner(theirs)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with served(fleet, actions=actions) as at:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"http://{host}:{port}/")
        yield Attack(at.url.partition("#")[0], page, fleet, actions)
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
    async with attacked_server(browser, host) as attack:
        results = await attack.page.evaluate(TRIES, [attack.url, PAUSE, TOKEN_HEADER])
        blocked = {"read", "states", "changed"}
        assert {results[name] for name in blocked} == {"TypeError"}
        others = {"followed", "picture", "script", "style"}
        assert {results[name] for name in others} == {"refused"}
        await asyncio.sleep(0.1)
        assert attack.is_unharmed()


async def test_another_page_may_link_to_ours_but_not_frame_or_submit_to_it(
    browser: Browser,
) -> None:
    async with attacked_server(browser) as attack:
        foreign = attack.page.url
        async with attack.page.expect_console_message(_of_frames):
            await attack.page.evaluate(FRAME, attack.url)
        await asyncio.sleep(0.1)
        assert attack.is_unharmed()
        async with attack.page.expect_navigation() as navigated:
            await attack.page.evaluate(FORM, [attack.url, PAUSE])
        answer = await navigated.value
        assert answer is not None
        assert answer.status == 403
        assert attack.is_unharmed()
        await attack.page.goto(foreign)
        await attack.page.evaluate("(url) => { location.href = url; }", attack.url)
        await attack.page.locator("#link[data-state=live]").wait_for()


# --- requests that no browser sends ---------------------------------------------------


@pytest.fixture
def unharmed(at: Served, fleet: CountedFleet, actions: FakeActions) -> Iterator[Served]:
    """Serve a fleet. Check after the test that it was neither read nor changed."""
    yield at
    assert (actions.done, fleet.reads) == ([], 0)


async def raw(to: Served, *lines: str) -> bytes:
    """Send a request that HTTP clients would refuse to send; return the headers."""
    port = urlsplit(to.url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head


async def test_our_page_under_one_name_is_foreign_under_the_other(
    unharmed: Served, http: ClientSession
) -> None:
    other = unharmed.origin.replace("127.0.0.1", "localhost")
    headers = {"Origin": unharmed.origin}
    async with http.get(f"{other}/states", headers=headers) as answer:
        assert answer.status == 403


async def test_only_the_pages_own_files_are_served(unharmed: Served) -> None:
    host = f"Host: {urlsplit(unharmed.url).netloc}"
    for path in PATHS:
        head = await raw(unharmed, f"GET {path} HTTP/1.1", host)
        assert head.split()[1] in (b"400", b"404"), path


async def test_only_a_post_changes_anything(
    unharmed: Served, http: ClientSession
) -> None:
    headers = {"Origin": unharmed.origin}
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
        for path in ("change", "preview", "token", "change?do=pause"):
            url = f"{unharmed.origin}/{path}"
            async with http.request(method, url, data=PAUSE, headers=headers) as answer:
                assert answer.status in (404, 405)


async def test_two_host_headers_or_none_are_rejected(unharmed: Served) -> None:
    ours = f"Host: {urlsplit(unharmed.url).netloc}"
    for hosts in ([], ["Host: evil.example", ours], [ours, "Host: evil.example"]):
        head = await raw(unharmed, "GET / HTTP/1.1", *hosts)
        assert head.split()[1] in (b"400", b"403")
    head = await raw(unharmed, "GET http://evil.example/ HTTP/1.1", ours)
    assert b"Access-Control" not in head


async def test_request_data_comes_back_as_text_only(
    unharmed: Served, http: ClientSession
) -> None:
    sent = json.dumps({"invitation": 1, "<script>alert(1)</script>": 2})
    headers = {"Origin": unharmed.origin}
    for path in ("token", "%3Cscript%3Ealert(1)%3C/script%3E"):
        async with http.post(
            f"{unharmed.origin}/{path}", data=sent, headers=headers
        ) as answer:
            assert answer.status >= 400
            assert answer.content_type != "text/html"


# --- hostile rows ---------------------------------------------------------------------


async def test_row_values_are_shown_as_text_everywhere(browser: Browser) -> None:
    fleet = ToyFleet([HOSTILE], {HOSTILE: 2, "orders": 2})
    fleet.group = GroupRow("group", paused=True, pause_reason=HOSTILE)
    fleet.change(HOSTILE, label=HOSTILE, state=HOSTILE)
    for number in range(2):
        fleet.change_shard(shard(number), paused=True, pause_reason=HOSTILE)
    about = DashboardInfo(HOSTILE, HOSTILE, HOSTILE)
    async with served(fleet, about=about) as at, shown_page(browser, at.url) as page:
        await page.evaluate("() => { window.untaken = document.title; }")
        fleet.trouble = CorruptRowError(HOSTILE)
        at.poller.wake()
        await expect(page.locator("#notices")).to_contain_text("so this state is old")
        fleet.trouble = None
        fleet.join(f"another {HOSTILE}")
        fleet.join("line\nend\u202eright to left")
        at.poller.wake()
        await expect(page.locator("#events")).to_contain_text("another")
        escaped = "line\\u{a}end\\u{202e}right to left"
        await expect(page.locator("#members")).to_contain_text(escaped)
        for option in await page.get_by_role("option").all():
            await option.click()
            await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        for tables in await page.get_by_text("Shards as a table").all():
            await tables.click()
        await expect(page.locator("body")).to_contain_text(SHOWN)
        assert await page.locator(".taken, main img, body script").count() == 0
        text = await page.evaluate("document.body.innerText")
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert await page.title() == await page.evaluate("untaken")
