"""Test the server: accepted requests, responses and polling."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession
from hatchling.builders.wheel import WheelBuilder

from kinesumer.model.records import Record
from kinesumer.ops.dashboard.records import LetterBrowser
from kinesumer.ops.dashboard.server import TOKEN_HEADER, page_files
from kinesumer.ops.group.connect import NO_ROLES
from tests.support.served_page import Served, served
from tests.support.toy_fleet import (
    CountedFleet,
    FakeActions,
    FakeRecords,
    ToyFleet,
    arn_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="package")

PAUSE = {"do": "pause"}


async def post(
    http: ClientSession, at: Served, path: str, body: object, **headers: str
) -> tuple[int, Any]:
    url, sent = f"{at.origin}/{path}", {"Origin": at.origin, **headers}
    async with http.post(url, json=body, headers=sent) as answer:
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, json.loads(text) if is_json else text


async def test_dead_letters_need_the_token(http: ClientSession) -> None:
    no_clients: Any = None  # no target is opened
    letters = LetterBrowser("billing", "file:letters", no_clients, NO_ROLES)
    fleet = ToyFleet(["a"], {"orders": 1})
    async with served(fleet, letters=letters) as at:
        assert (await post(http, at, "letters", {}))[0] == 403
    async with served(fleet) as at:
        assert (await post(http, at, "letters", {}))[0] == 404


async def token(http: ClientSession, at: Served) -> str:
    invitation = at.url.partition("#token=")[2]
    status, answer = await post(http, at, "token", {"invitation": invitation})
    assert status == 200
    return str(answer["token"])


async def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(
    http: ClientSession, at: Served
) -> None:
    async with http.get(at.origin) as answer:
        page = await answer.text()
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "//" not in page.replace("<!doctype html>", "")
    for name in ("main.js", "page.css", "icon.svg"):
        async with http.get(f"{at.origin}/{name}") as answer:
            assert answer.status == 200
    async with http.get(f"{at.origin}/..%2fserver.py") as answer:
        assert answer.status == 404
        assert "Content-Security-Policy" in answer.headers


async def test_a_host_that_resolves_here_is_rejected(
    http: ClientSession, at: Served
) -> None:
    hosts = ("evil.example", "127.0.0.1:1", "127.0.0.1", "")
    for host, path in product(hosts, ("", "states")):
        async with http.get(f"{at.origin}/{path}", headers={"Host": host}) as answer:
            assert answer.status == 403


async def test_another_origin_or_none_is_rejected(
    http: ClientSession, at: Served
) -> None:
    body = {"invitation": at.url.partition("#token=")[2]}
    for origin in ("http://evil.example", "null", "http://127.0.0.1", None):
        headers = {"Origin": origin} if origin else {}
        if origin:
            async with http.get(f"{at.origin}/states", headers=headers) as answer:
                assert answer.status == 403
        async with http.post(
            f"{at.origin}/token", json=body, headers=headers
        ) as answer:
            assert answer.status == 403, origin


async def test_the_printed_link_is_good_for_one_exchange(
    http: ClientSession, at: Served
) -> None:
    invitation = at.url.partition("#token=")[2]
    status, _ = await post(http, at, "token", {"invitation": "guessed"})
    assert status == 403
    assert await token(http, at)
    status, answer = await post(http, at, "token", {"invitation": invitation})
    assert (status, "used before" in answer["error"]) == (403, True)


async def test_changes_need_the_token(
    http: ClientSession, at: Served, actions: FakeActions
) -> None:
    secret = await token(http, at)
    for path in ("preview", "change"):
        for wrong in ("", "x", at.url.partition("#token=")[2]):
            status, answer = await post(http, at, path, PAUSE, **{TOKEN_HEADER: wrong})
            assert (status, "token" in answer["error"]) == (403, True)
    assert actions.done == []
    header = {TOKEN_HEADER: secret}
    assert await post(http, at, "preview", PAUSE, **header) == (
        200,
        {"lines": ["it will Pause"], "summary": "skips 3 records", "skips": True},
    )
    assert actions.done == []
    assert await post(http, at, "change", PAUSE, **header) == (200, {"done": "done"})
    assert len(actions.done) == 1


async def test_a_failed_change_is_reported(
    http: ClientSession, at: Served, actions: FakeActions
) -> None:
    header = {TOKEN_HEADER: await token(http, at)}
    last = {"do": "drain", "client": "last"}
    assert await post(http, at, "change", last, **header) == (
        409,
        {"error": "it is the last\\x07 client"},
    )
    assert actions.done == []


async def test_a_read_only_server_rejects_changes(
    http: ClientSession, fleet: CountedFleet
) -> None:
    async with served(fleet) as at:
        assert "#" not in at.url
        status, answer = await post(http, at, "change", PAUSE)
        assert (status, "--allow-changes" in answer["error"]) == (403, True)


ORDERS = {"stream": "orders", "shard": "shardId-000000000000"}


async def test_records_need_the_flag_and_the_token(
    http: ClientSession, at: Served, fleet: CountedFleet
) -> None:
    header = {TOKEN_HEADER: await token(http, at)}
    assert (await post(http, at, "records", ORDERS, **header))[0] == 404
    records = FakeRecords(Record("7", b"{}", "key", 1.0))
    async with served(fleet, records=records) as browsed:
        for wrong in ({}, header, {TOKEN_HEADER: "guessed"}):
            status, answer = await post(http, browsed, "records", ORDERS, **wrong)
            assert (status, "need the token" in answer["error"]) == (403, True)
        header = {TOKEN_HEADER: await token(http, browsed)}
        other = {**header, "Origin": "http://evil.example"}
        assert (await post(http, browsed, "records", ORDERS, **other))[0] == 403
        async with http.get(f"{browsed.origin}/records", headers=header) as refused:
            assert refused.status == 405
        status, _ = await post(http, browsed, "change", PAUSE, **header)
        assert status == 403, "the token of a link to records allows no changes"
        assert records.requests == []
        status, answer = await post(http, browsed, "records", ORDERS, **header)
        assert (status, answer["records"][0]["text"]) == (200, "{}")
        for more in ({"limit": 201}, {"limit": 0}, {"all": True}, {"from": 5}):
            body = {**ORDERS, **more}
            assert (await post(http, browsed, "records", body, **header))[0] == 400
        body = {**ORDERS, "from": "yesterday"}
        status, answer = await post(http, browsed, "records", body, **header)
        assert (status, answer["error"]) == (409, "from yesterday: give a time")


async def test_a_page_that_is_opened_later_gets_the_history(
    http: ClientSession, at: Served, fleet: CountedFleet
) -> None:
    fleet.report_rates({arn_of("orders"): 5.0})
    states = at.poller.states()
    await anext(states)
    for _ in range(2):
        at.clock.seconds += 60
        at.poller.wake()
        await anext(states)
    await states.aclose()
    async with http.get(f"{at.origin}/states") as answer:
        state = await next_state(answer)
    assert len(state["history"]["times"]) == 3
    (line,) = state["history"]["records_per_second"]
    assert line["values"] == [pytest.approx(5.0, rel=0.16)] * 3
    assert [band["slot"] for band in state["bands"].values()] == [line["slot"]]


async def newest_state(at: Served) -> dict[str, Any]:
    async with aclosing(at.poller.states()) as states:
        return dict(json.loads(await anext(states)))


async def next_state(answer: ClientResponse) -> dict[str, Any]:
    while True:
        line = (await answer.content.readuntil(b"\n")).decode()
        if line.startswith("data: "):
            return dict(json.loads(line.removeprefix("data: ")))


async def test_the_history_and_the_events_need_no_open_page(
    at: Served, fleet: CountedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.ops.dashboard.poller.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("kinesumer.ops.dashboard.poller.MIN_INTERVAL_SECONDS", 0.01)
    at.poller.wake()  # the wait of the usual length ends
    for number in range(3):
        fleet.join(f"new-{number}")
        before, at.clock.seconds = fleet.reads, at.clock.seconds + 60
        while fleet.reads < before + 2:
            await asyncio.sleep(0.01)
    state = await newest_state(at)
    assert len(state["history"]["times"]) >= 3
    texts = {event["text"] for event in state["events"]}
    assert {"new-1 joined", "new-2 joined"} <= texts


async def test_states_come_as_events_and_rarely_while_no_page_is_open(
    http: ClientSession, at: Served, fleet: CountedFleet
) -> None:
    await asyncio.sleep(0.05)
    assert fleet.reads == 0
    async with http.get(f"{at.origin}/states") as answer:
        assert answer.content_type == "text/event-stream"
        state = await next_state(answer)
        assert (state["report"]["app"], state["totals"]["shards"]) == ("billing", 2)
        fleet.join("b")
        at.poller.wake()
        state = await next_state(answer)
        assert [event["text"] for event in state["events"]] == ["b joined"]
        assert state["events"][0]["number"] == 1


async def test_lags_from_an_earlier_poll_tell_their_age(
    at: Served, fleet: CountedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.ops.dashboard.poller.MEASURING_SECONDS", 0.01)
    assert (await newest_state(at))["totals"]["millis_behind_latest"] == 0
    fleet.slow = True
    at.clock.seconds += 30
    state = await newest_state(at)
    totals = state["totals"]
    assert (totals["millis_behind_latest"], state["lag_age_seconds"]) == (0, 30)


async def test_a_second_page_gets_the_newest_state_without_a_poll(
    at: Served, fleet: CountedFleet
) -> None:
    first, second = at.poller.states(), at.poller.states()
    state = await anext(first)
    assert await anext(second) == state
    assert fleet.reads == 1
    await first.aclose()
    await second.aclose()


async def test_slow_lags_do_not_keep_the_rows_from_being_shown(
    http: ClientSession,
    at: Served,
    fleet: CountedFleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.ops.dashboard.poller.MEASURING_SECONDS", 0.01)
    fleet.slow = True
    async with http.get(f"{at.origin}/states") as answer:
        state = await next_state(answer)
    totals = state["totals"]
    assert (totals["owned"], totals["millis_behind_latest"]) == (2, None)


async def test_larger_fleets_are_polled_less_often(http: ClientSession) -> None:
    paces = []
    for count in (5, 1000):
        fleet = ToyFleet(["a"], {"orders": count})
        async with served(fleet) as at, http.get(f"{at.origin}/states") as answer:
            paces.append((await next_state(answer))["every_seconds"])
    assert paces == [2, 4]


ROOT = Path(__file__).parents[4]


async def test_the_wheel_has_every_file_of_the_page() -> None:
    builder = WheelBuilder(str(ROOT))
    found = {file.distribution_path for file in builder.recurse_included_files()}
    wanted = {f"kinesumer/ops/dashboard/static/{name}" for name in page_files()}
    assert wanted <= found
    assert len(wanted) > 10
