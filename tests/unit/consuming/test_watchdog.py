"""What hangs is reported with its stack and loses its shards; the rest keeps them."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.config import Config
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.consuming.watchdog import oldest_of
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatThread
from kinesumer.coordination.store_thread import StoreThread
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import Start
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from tests.support.world import APP, FaultySource, World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from kinesumer.consuming.watchdog import InFlightWork
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Stream
    from kinesumer.ports import Reservation

SHARD = "orders shardId-000000000000"


class HangingSource(FaultySource):
    """A way to a stream that never answers one read."""

    hangs = True

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return a page, or nothing for ever."""
        if self.hangs:
            self.hangs = False
            await asyncio.Event().wait()
        return await super().get_records(iterator, limit, reservation)


class Thinking:
    """A handler that takes its time with each record."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def __call__(self, _: object) -> None:
        await asyncio.sleep(self.seconds)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the watchdog said."""
    said = [record.getMessage() for record in caplog.records]
    return [text for text in said if "has made no progress for" in text]


@in_virtual_time
async def test_a_handler_that_awaits_for_ever_is_reported_and_loses_its_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def waits_for_what_never_comes(_: object) -> None:
        await asyncio.Event().wait()

    world.put("a")
    stuck = world.client(
        "c1", handle=waits_for_what_never_comes, max_processing_seconds=60
    )
    await world.until(lambda: stuck.seen)
    healthy = world.client("c2")
    await world.until(lambda: healthy.texts == ["a"], seconds=90)
    assert world.members()["c1"].dead
    [report] = reports(caplog)
    assert report.startswith(f"user code at {SHARD} has made no progress")
    assert "in waits_for_what_never_comes" in report


@in_virtual_time
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
    await world.until(lambda: client.texts == ["a"])  # it takes part again
    assert world.members()["c1"].incarnation == 1
    assert next(iter(world.shard_rows().values())).epoch == 2
    [report] = reports(caplog)
    assert report.startswith(f"the request for records of {SHARD} has made no progress")
    assert "in get_records" in report


@in_virtual_time
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


@in_virtual_time
async def test_requests_that_fail_and_are_tried_again_are_no_hang(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    source.errors.extend(SourceUnavailableError("reset") for _ in range(40))
    world.put("a")
    client = world.client("c1", source=lambda _: source, max_processing_seconds=10)
    await world.until(lambda: client.texts == ["a"], seconds=600)
    assert world.clock.now() > 30
    assert not reports(caplog)


@in_virtual_time
async def test_an_outage_of_kinesis_is_no_hang(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    client = world.client("c1", source=lambda _: source, max_processing_seconds=60)
    await world.until(lambda: client.held)
    source.down = True
    await asyncio.sleep(600)
    source.down = False
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    assert not reports(caplog)
    assert world.members()["c1"].incarnation == 0


@in_virtual_time
async def test_user_code_that_makes_progress_is_left_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put(*map(str, range(10)))
    client = world.client("c1", handle=Thinking(50), max_processing_seconds=60)
    await world.until(lambda: len(client.seen) == 10, seconds=600)
    await asyncio.sleep(600)
    assert not reports(caplog)
    assert world.members()["c1"].incarnation == 0


async def test_a_handler_that_blocks_the_thread_is_reported_and_loses_its_shards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SystemClock()
    store, kinesis = MemoryStore(clock), MemoryKinesis(clock)
    kinesis.create_stream("orders")
    kinesis.put("orders", b"a", explicit_hash_key=0)
    config = Config(
        heartbeat_interval_seconds=0.1,
        lease_duration_seconds=5.0,
        max_processing_seconds=0.5,
    )
    ids = map(str, range(1000))

    @asynccontextmanager
    async def open_store() -> AsyncIterator[MemoryStore]:
        yield store

    thread = StoreThread(open_store)
    context = ClientContext(
        app=APP,
        client_id="c1",
        config=config,
        store=await thread.start(),
        clock=clock,
        random=Random(1),
        new_id=lambda: next(ids),
        failure_log=FailureLog(clock),
    )

    async def open_source(stream: Stream) -> Any:
        return kinesis.source(stream.name)

    def blocks_until_reported() -> None:
        give_up_at = time.monotonic() + 20
        while not reports(caplog) and time.monotonic() < give_up_at:
            time.sleep(0.01)

    delivery = RecordDelivery(clock, acks_by_asking=True)
    heart = HeartbeatThread(context, thread)
    group = GroupConsumer(context, open_source, heart, delivery)

    async def start() -> None:
        await group.start("orders", Start.TRIM_HORIZON)

    async for _ in Records(delivery, start):
        [owned] = group.owned_shards()
        blocks_until_reported()
        break
    async with asyncio.timeout(20):
        while not owned.revoked:
            await asyncio.sleep(0.01)
    await group.stop(wait_for_user=False)
    await thread.stop()
    report = reports(caplog)[0]
    assert report.startswith(f"user code at {SHARD} has made no progress")
    assert "in blocks_until_reported" in report


@in_virtual_time
async def test_shards_of_who_stopped_asking_go_to_others_until_it_asks_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    left = world.client("c1", max_processing_seconds=60)
    await world.until(lambda: left.held)
    left.task.cancel()  # and its program goes on with something else
    other = world.client("c2")
    world.put("a")
    await world.until(lambda: other.texts == ["a"], seconds=80)
    assert reports(caplog)[0].startswith("the loop over records, whose task was")
    other.kill()
    world.put("b")
    again = world.loop.spawn(left.machine, left._consume())
    await world.until(lambda: "b" in left.texts, seconds=30)
    again.cancel()


@in_virtual_time
async def test_who_asks_now_and_then_with_a_timeout_keeps_its_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client("c1", max_processing_seconds=60)
    await world.until(lambda: client.held)
    client.task.cancel()
    for _ in range(10):
        await asyncio.sleep(40)
        waiting = world.loop.spawn(client.machine, client._consume())
        await asyncio.sleep(1)
        waiting.cancel()
    assert client.held
    assert not reports(caplog)


@in_virtual_time
async def test_what_else_holds_the_loop_is_reported_when_seen_for_too_long(
    world: World,
) -> None:
    client = world.client("c1", max_processing_seconds=60)
    await world.until(lambda: client.held)
    loop_clock = client.context.loop_clock

    def oldest() -> InFlightWork | None:
        return oldest_of(client.delivery, (), loop_clock)

    assert oldest() is None
    client.machine.block(90)
    await asyncio.sleep(5)
    seen = world.clock.now()
    work = oldest()
    assert work is not None
    assert work.what == "what runs on the event loop and blocks it"
    assert "test_what_else_holds_the_loop" in work.stack()
    await asyncio.sleep(70)
    assert (again := oldest()) is not None
    assert again.since == work.since == seen
    await asyncio.sleep(20)
    assert oldest() is None


@in_virtual_time
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
