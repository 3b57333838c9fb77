"""The server: accepted requests, responses and polling."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
import pytest_asyncio

from kinesumer.dashboard.auth import TOKEN_HEADER
from kinesumer.dashboard.server import listen
from kinesumer.errors import ConfigurationError
from tests.integration.dashboard.conftest import Served, served
from tests.support.dashboard import CountedFleet, FakeActions
from tests.support.toy_fleet import ToyFleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesumer.dashboard.actions import ActionHandler

PAUSE = {"do": "pause"}


@pytest.fixture
def fleet() -> CountedFleet:
    return CountedFleet(["a"], {"orders": 2})


@pytest.fixture
def desk() -> FakeActions:
    return FakeActions()


@pytest_asyncio.fixture
async def at(fleet: CountedFleet, desk: FakeActions) -> AsyncIterator[Served]:
    async with served(fleet, actions=cast("ActionHandler", desk)) as found:
        yield found


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def base(at: Served) -> str:
    return at.url.partition("#")[0]


def ours(at: Served, **more: str) -> dict[str, str]:
    return {"Origin": base(at).rstrip("/"), **more}


async def post(
    http: aiohttp.ClientSession, at: Served, path: str, body: object, **headers: str
) -> tuple[int, Any]:
    async with http.post(
        base(at) + path, json=body, headers=ours(at, **headers)
    ) as answer:
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, json.loads(text) if is_json else text


async def token(http: aiohttp.ClientSession, at: Served) -> str:
    invitation = at.url.partition("#token=")[2]
    status, answer = await post(http, at, "token", {"invitation": invitation})
    assert status == 200
    return str(answer["token"])


async def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(
    http: aiohttp.ClientSession, at: Served
) -> None:
    async with http.get(base(at)) as answer:
        page = await answer.text()
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "//" not in page.replace("<!doctype html>", "")
    for name in ("main.js", "page.css", "icon.svg"):
        async with http.get(base(at) + name) as answer:
            assert answer.status == 200
    async with http.get(base(at) + "..%2fserver.py") as answer:
        assert answer.status == 404
        assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "127.0.0.1", ""])
async def test_a_host_that_resolves_here_is_rejected(
    http: aiohttp.ClientSession, at: Served, host: str
) -> None:
    for path in ("", "states"):
        async with http.get(base(at) + path, headers={"Host": host}) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:1"]
)
async def test_another_origin_is_rejected(
    http: aiohttp.ClientSession, at: Served, origin: str
) -> None:
    headers = {"Origin": origin}
    async with http.get(base(at) + "states", headers=headers) as answer:
        assert answer.status == 403
    body = {"invitation": at.url.partition("#token=")[2]}
    async with http.post(base(at) + "token", json=body, headers=headers) as answer:
        assert answer.status == 403
    async with http.post(base(at) + "token", json=body) as answer:
        assert answer.status == 403, "no origin at all"


async def test_the_printed_link_is_good_for_one_exchange(
    http: aiohttp.ClientSession, at: Served
) -> None:
    invitation = at.url.partition("#token=")[2]
    status, _ = await post(http, at, "token", {"invitation": "guessed"})
    assert status == 403
    assert await token(http, at)
    status, answer = await post(http, at, "token", {"invitation": invitation})
    assert (status, "used before" in answer["error"]) == (403, True)


async def test_changes_need_the_token(
    http: aiohttp.ClientSession, at: Served, desk: FakeActions
) -> None:
    secret = await token(http, at)
    for path in ("preview", "change"):
        for wrong in ("", "x", at.url.partition("#token=")[2]):
            status, answer = await post(http, at, path, PAUSE, **{TOKEN_HEADER: wrong})
            assert (status, "token" in answer["error"]) == (403, True)
    assert desk.done == []
    header = {TOKEN_HEADER: secret}
    assert await post(http, at, "preview", PAUSE, **header) == (
        200,
        {"lines": ["it will Pause"], "summary": "skips 3 records"},
    )
    assert desk.done == []
    assert await post(http, at, "change", PAUSE, **header) == (200, {"done": "done"})
    assert len(desk.done) == 1


async def test_invalid_and_failed_changes_are_reported(
    http: aiohttp.ClientSession, at: Served, desk: FakeActions
) -> None:
    header = {TOKEN_HEADER: await token(http, at)}
    for wrong in ({"do": "delete"}, {"do": "pause", "force": True}, {"do": "drain"}, 7):
        status, _ = await post(http, at, "change", wrong, **header)
        assert status == 400
    last = {"do": "drain", "client": "last"}
    assert await post(http, at, "change", last, **header) == (
        409,
        {"error": "it is the last\\x07 client"},
    )
    assert desk.done == []


async def test_a_read_only_server_rejects_changes(
    http: aiohttp.ClientSession, fleet: CountedFleet
) -> None:
    async with served(fleet) as at:
        assert "#" not in at.url
        status, answer = await post(http, at, "change", PAUSE)
        assert (status, "--allow-changes" in answer["error"]) == (403, True)


async def next_state(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    while True:
        line = (await answer.content.readuntil(b"\n")).decode()
        if line.startswith("data: "):
            return dict(json.loads(line.removeprefix("data: ")))


async def test_states_come_as_events_and_only_while_a_page_is_open(
    http: aiohttp.ClientSession, at: Served, fleet: CountedFleet
) -> None:
    await asyncio.sleep(0.05)
    assert fleet.looks == 0
    async with http.get(base(at) + "states") as answer:
        assert answer.content_type == "text/event-stream"
        state = await next_state(answer)
        assert (state["app"], state["totals"]["shards"]) == ("billing", 2)
        fleet.join("b")
        at.poller.wake()
        state = await next_state(answer)
        assert [event["text"] for event in state["events"]] == ["b joined"]
        assert state["events"][0]["number"] == 1


async def test_lags_from_before_a_pause_of_polling_are_dropped(
    http: aiohttp.ClientSession,
    at: Served,
    fleet: CountedFleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.dashboard.poller.MIN_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("kinesumer.dashboard.poller.MEASURING_SECONDS", 0.01)
    states = at.poller.states()
    assert json.loads(await anext(states))["totals"]["millis_behind"] == 0
    await states.aclose()
    await asyncio.sleep(0.1)
    fleet.slow = True
    states = at.poller.states()
    assert json.loads(await anext(states))["totals"]["millis_behind"] is None
    await states.aclose()


async def test_a_second_page_gets_the_newest_state_without_a_poll(
    http: aiohttp.ClientSession, at: Served, fleet: CountedFleet
) -> None:
    first, second = at.poller.states(), at.poller.states()
    state = await anext(first)
    assert await anext(second) == state
    assert fleet.looks == 1
    await first.aclose()
    await second.aclose()


async def test_slow_lags_do_not_keep_the_rows_from_being_shown(
    http: aiohttp.ClientSession,
    at: Served,
    fleet: CountedFleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.dashboard.poller.MEASURING_SECONDS", 0.01)
    fleet.slow = True
    async with http.get(base(at) + "states") as answer:
        state = await next_state(answer)
    assert state["totals"] == {
        "clients": 1,
        "shards": 2,
        "owned": 2,
        "neglected": 0,
        "paused": 0,
        "millis_behind": None,
        "records_per_second": None,
    }


async def test_larger_fleets_are_polled_less_often(
    http: aiohttp.ClientSession,
) -> None:
    paces = []
    for count in (5, 1000):
        fleet = ToyFleet(["a"], {"orders": count})
        async with served(fleet) as at, http.get(base(at) + "states") as answer:
            paces.append((await next_state(answer))["every_seconds"])
    assert paces == [2, 4]


async def test_a_port_in_use_is_named(at: Served) -> None:
    port = int(base(at).rstrip("/").rpartition(":")[2])
    with pytest.raises(
        ConfigurationError, match=rf"127\.0\.0\.1:{port}.*another --port"
    ):
        listen(port)
