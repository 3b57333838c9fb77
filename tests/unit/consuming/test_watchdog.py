"""Test that a hanging client is reported with its stack and loses its shards."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest

from kinesumer import Config, Kinesumer
from kinesumer.consuming.delivery_protocol import oldest_of
from kinesumer.consuming.watchdog import InFlightWork
from kinesumer.coordination.heartbeat import HeartbeatThread
from kinesumer.model.records import Page
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import Reservation
from kinesumer.runtime.clock import SystemClock
from kinesumer.testing.memory import MemoryKinesis, MemoryStore, memory_ports
from tests.support.clients import Thinking
from tests.support.faulty import FaultySource
from tests.support.members import store_thread
from tests.support.world import World

SHARD = "orders shardId-000000000000"


class HangingSource(FaultySource):
    """A source that never answers one of its reads."""

    hangs = True

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return a page, or never return."""
        if self.hangs:
            self.hangs = False
            await asyncio.Event().wait()
        return await super().get_records(iterator, limit, reservation)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log messages of the watchdog."""
    said = [record.getMessage() for record in caplog.records]
    return [text for text in said if "has made no progress for" in text]


async def test_a_handler_that_awaits_for_ever_is_reported_and_loses_its_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    stuck = world.client("c1", handle=Thinking(1e9), max_processing_seconds=60)
    await world.until(lambda: stuck.seen)
    healthy = world.client("c2")
    await world.until(lambda: healthy.texts == ["a"], seconds=90)
    assert world.members()["c1"].dead
    [report] = reports(caplog)
    assert report.startswith(f"user code at {SHARD} has made no progress")
    assert "await asyncio.sleep(self.seconds)" in report


async def test_a_request_that_is_never_answered_is_reported_and_loses_its_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = HangingSource(world.kinesis.source("orders"))
    world.put("a")
    client = world.client("c1", source=lambda _: source, max_processing_seconds=60)
    await world.until(lambda: client.held)
    [owned] = client.group.owned_shards()
    await world.until(lambda: owned.revoked, seconds=90)
    assert owned.lease.dead
    await world.until(lambda: client.texts == ["a"])  # the client has rejoined
    assert world.members()["c1"].incarnation == 1
    assert next(iter(world.shard_rows().values())).epoch == 2
    [report] = reports(caplog)
    assert report.startswith(f"the request for records of {SHARD} has made no progress")
    assert "in get_records" in report


async def test_a_request_that_hangs_while_user_code_goes_on_is_what_is_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = HangingSource(world.kinesis.source("orders"))
    source.hangs = False
    world.put(*map(str, range(40)))
    client = world.client(
        "c1", source=lambda _: source, handle=Thinking(7), max_processing_seconds=60
    )
    await world.until(lambda: client.seen)
    source.hangs = True
    await world.until(lambda: reports(caplog), seconds=90)
    assert reports(caplog)[0].startswith("the request for records of")


async def test_an_outage_of_kinesis_is_no_hang(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    client = world.client("c1", source=lambda _: source, max_processing_seconds=60)
    await world.until(lambda: client.held)
    source.down = True
    await asyncio.sleep(300)
    source.down = False
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    assert not reports(caplog)
    assert world.members()["c1"].incarnation == 0


async def test_a_handler_that_blocks_the_thread_is_reported_and_loses_its_shards(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first plan doesn't wait for other clients.
    monkeypatch.setattr("kinesumer.coordination.leader.FIRST_PLAN_DELAY_SECONDS", 0.0)
    clock = SystemClock()
    kinesis = MemoryKinesis(clock)
    kinesis.create_stream("orders")
    kinesis.put("orders", b"a", explicit_hash_key=0)

    async def open_source(stream: Stream) -> Any:
        return kinesis.source(stream.name)

    def blocks_until_reported() -> None:
        give_up_at = time.monotonic() + 20
        while not reports(caplog) and time.monotonic() < give_up_at:
            time.sleep(0.01)

    config = Config(
        heartbeat_interval_seconds=0.1,
        lease_duration_seconds=5.0,
        max_processing_seconds=0.5,
    )
    async with store_thread(MemoryStore(clock)) as thread, asyncio.timeout(40):
        store, heartbeat = await thread.start(), partial(HeartbeatThread, thread=thread)
        make_id = partial(next, map(str, count()))
        ports = memory_ports(
            clock, Random(1), make_id, store, open_source, heartbeat=heartbeat
        )
        async with Kinesumer("app", config=config, _ports=ports) as client:
            async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
                held = client.assignment()
                blocks_until_reported()
                break
            while client.assignment() == held:
                await asyncio.sleep(0.01)
    report = reports(caplog)[0]
    assert report.startswith(f"user code at {SHARD} has made no progress")
    assert "in blocks_until_reported" in report


async def test_a_client_that_stops_asking_loses_its_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    left = world.client("c1", max_processing_seconds=60)
    await world.until(lambda: left.held)
    left.task.cancel()  # user code stops asking, but the process runs on
    other = world.client("c2")
    world.put("a")
    await world.until(lambda: other.texts == ["a"], seconds=80)
    assert reports(caplog)[0].startswith("the loop over records, whose task was")
    other.kill()
    world.put("b")
    again = world.loop.spawn(left.machine, left._consume())
    await world.until(lambda: "b" in left.texts, seconds=30)
    again.cancel()


async def test_a_client_that_asks_now_and_then_keeps_its_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client("c1", max_processing_seconds=60)
    await world.until(lambda: client.held)
    client.task.cancel()
    for _ in range(4):
        await asyncio.sleep(40)
        waiting = world.loop.spawn(client.machine, client._consume())
        await asyncio.sleep(1)
        waiting.cancel()
    assert client.held
    assert not reports(caplog)


async def test_other_code_that_blocks_the_loop_is_reported(world: World) -> None:
    client = world.client("c1", max_processing_seconds=60)
    await world.until(lambda: client.held)
    loop_clock = client.group.context.loop_clock

    def oldest() -> InFlightWork | None:
        return oldest_of(client.group.delivery, (), loop_clock)

    this_test = test_other_code_that_blocks_the_loop_is_reported.__name__
    assert oldest() is None
    client.machine.block(90)
    await asyncio.sleep(5)
    seen = world.clock.now()
    work = oldest()
    assert work is not None
    assert work.what == "what runs on the event loop and blocks it"
    # The stack quotes the next line, so that line must not spell out the test's name.
    assert f"in {this_test}\n" in work.stack()
    await asyncio.sleep(70)
    assert (again := oldest()) is not None
    assert again.since == work.since == seen
    await asyncio.sleep(20)
    assert oldest() is None


async def test_a_request_is_no_hang_while_user_code_holds_the_loop(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = HangingSource(world.kinesis.source("orders"))
    client = world.client("c1", source=lambda _: source, max_processing_seconds=60)
    await world.until(lambda: client.held)
    [owned] = client.group.owned_shards()
    for _ in range(3):
        client.machine.block(50)
        await asyncio.sleep(50.3)
    assert not owned.revoked
    assert not reports(caplog)
    await world.until(lambda: owned.revoked, seconds=90)
    assert reports(caplog)[0].startswith("the request for records of")
