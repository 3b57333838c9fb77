"""Test one handler for each stream: its options, its failures and other streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kinesumer import Batch, Handler, Middleware, Record, Stream
from kinesumer.dead_letters import DeadLetter
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.dead_letters import targets
from kinesumer.handlers.handler import read_run_options
from tests.support.clients import OLDEST
from tests.support.handler_client import ONCE
from tests.support.world import ARN, InMemory, World


class Log:
    """Handlers that note what they are called with. They fail at the data "bad"."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def note(self, name: str, *records: Record) -> None:
        """Note the streams and the data of records."""
        for record in records:
            if record.data == b"bad":
                raise ValueError(record.stream)
            self.seen.append(f"{name} {record.stream} {record.data.decode()}")

    async def order(self, record: Record) -> None:
        self.note("order", record)

    async def payments(self, batch: Batch) -> None:
        self.note(f"{len(batch)} payments", *batch.records)

    def refund(self, record: Record) -> None:
        self.note("refund", record)


@asynccontextmanager
async def running(
    world: World, handlers: Any, **options: Any
) -> AsyncIterator[InMemory]:
    """Call handlers in the background until the block ends."""
    for name in ("payments", "refunds"):
        world.kinesis.create_stream(name)
    async with InMemory(world) as client:
        task = world.loop.create_task(client.run(handlers, start=OLDEST, **options))
        # A refused call ends the task before the client starts.
        await world.until(lambda: client._lifecycle.group or task.done())
        if task.done():
            task.result()
        yield client
        await client.leave()
        await task


async def test_each_stream_has_its_own_handler_of_records_or_batches(
    world: World,
) -> None:
    log = Log()
    handlers = {"orders": log.order, Stream("payments"): log.payments}
    async with running(world, handlers):
        world.put("a")
        world.put("b", "c", stream="payments")
        await world.until(lambda: len(log.seen) == 3)
    assert sorted(log.seen) == [
        "2 payments payments b",
        "2 payments payments c",
        "order orders a",
    ]


async def test_options_of_a_handler_take_precedence_over_those_of_run(
    world: World,
) -> None:
    """The first handler gets one call at a time, and the second one gets two."""
    active: dict[str, int] = {"orders": 0, "payments": 0}
    most = dict(active)
    hooked: list[str] = []

    async def handle(record: Record) -> None:
        active[record.stream] += 1
        most[record.stream] = max(most[record.stream], active[record.stream])
        await asyncio.sleep(1)
        active[record.stream] -= 1

    class Hooks(Middleware):
        def after(self, item: Record) -> None:
            hooked.append(item.stream)

    handlers = {
        "orders": Handler(handle, concurrency=1, middleware=[]),
        "payments": handle,
    }
    async with running(world, handlers, concurrency=2, middleware=[Hooks()]):
        for stream in active:
            for key in range(4):
                world.kinesis.put(stream, b"x", str(key), 0)
        await world.until(lambda: len(hooked) == 4)
    assert most == {"orders": 1, "payments": 2}
    assert {*hooked} == {"payments"}


async def test_two_streams_share_one_target_of_dead_letters(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    stored: list[str] = []
    closed: list[str] = []
    refunds: list[str] = []

    class Target:
        def __init__(self, name: str) -> None:
            self.name = name

        async def put(self, letter: DeadLetter) -> None:
            stored.append(f"{self.name} {letter.stream_arn.rpartition('/')[2]}")

        async def aclose(self) -> None:
            closed.append(self.name)
            raise ValueError("the first target cannot be closed")

    async def open_readable(name: str, clients: object) -> Target:
        opened.append(name)
        return Target(name)

    async def keep(letter: DeadLetter) -> None:
        refunds.append(letter.stream_arn)

    monkeypatch.setattr(targets, "open_readable", open_readable)
    log = Log()
    handlers = {
        "orders": log.order,
        "payments": log.payments,
        "refunds": Handler(log.order, dead_letters=keep),
    }
    options = {"dead_letters": "file:shared", "retries": ONCE}
    with pytest.raises(ValueError, match="cannot be closed"):
        async with running(world, handlers, **options):
            for stream in handlers:
                world.put("bad", stream=stream)
            await world.until(lambda: len(stored) == 2 and refunds)
    assert opened == closed == ["file:shared"]
    assert sorted(stored) == ["file:shared orders", "file:shared payments"]


async def test_a_shard_of_one_stream_stops_and_other_streams_go_on(
    world: World,
) -> None:
    log = Log()
    handlers = {
        "orders": Handler(log.order, on_failure="stop-shard"),
        "payments": log.payments,
    }
    async with running(world, handlers, dead_letters="file:unused", retries=ONCE):
        world.put("a", "bad", "b")
        await world.until(lambda: log.seen == ["order orders a"])
        world.put("c", stream="payments")
        await world.until(lambda: "1 payments payments c" in log.seen)
    assert "order orders b" not in log.seen


PAYMENTS = Stream("payments")


@pytest.mark.parametrize(
    "decode", [{"orders": list[int], PAYMENTS: str}, list[int] | str]
)
async def test_each_stream_is_decoded_as_its_own_type(
    world: World, decode: Any
) -> None:
    seen: list[object] = []

    async def handle(record: Record[Any]) -> None:
        seen.append(record.value)

    handlers = {
        "orders": handle,
        PAYMENTS: handle,
        "refunds": Handler(handle, decode=lambda record: record.data.upper()),
    }
    async with running(world, handlers, decode=decode):
        world.put("[1]")
        world.put('"a"', stream="payments")
        world.put("b", stream="refunds")
        await world.until(lambda: len(seen) == 3)
    assert sorted(map(repr, seen)) == ["'a'", "[1]", "b'B'"]


async def test_a_stream_that_is_added_is_decoded_as_its_handler_says(
    world: World,
) -> None:
    seen: list[object] = []

    async def handle(record: Record[Any]) -> None:
        seen.append(record.value)

    async with running(world, {"orders": handle}, decode={"orders": int}) as client:
        await client.refresh({"payments": Handler(handle, decode=str)})
        world.put('"a"', stream="payments")
        await world.until(lambda: seen == ["a"])


# --- other streams while running ---


async def test_refresh_adds_streams_with_handlers(world: World) -> None:
    log = Log()
    handlers: dict[Any, Any] = {"orders": log.order}
    async with running(world, handlers) as client:
        world.put("a", stream="payments")
        with pytest.raises(ConfigurationError, match="stream payments has no handler"):
            await client.refresh(["orders", "payments"])
        await client.refresh(handlers | {"payments": log.payments})
        await world.until(lambda: log.seen == ["1 payments payments a"])
        # A stream that was left out keeps its handler.
        await client.refresh("payments")
        await client.refresh([ARN, "payments"])
        world.put("b")
        await world.until(lambda: "order orders b" in log.seen)
        with pytest.raises(ConfigurationError, match="can't replace: give it"):
            await client.refresh({ARN: log.refund, "refunds": log.refund})
        with pytest.raises(ConfigurationError, match="handler of stream refunds: "):
            await client.refresh({"refunds": print})
        await client.refresh({"refunds": log.order})


async def test_refresh_gets_handlers_only_where_each_stream_has_one(
    world: World,
) -> None:
    log = Log()
    async with InMemory(world) as client:
        running = world.loop.create_task(client.run("orders", log.order, start=OLDEST))
        await world.until(lambda: client._lifecycle.group)
        with pytest.raises(ConfigurationError, match="one handler for all streams"):
            await client.refresh({"orders": log.refund})
        await client.leave()
        await running
    async with InMemory(world) as client:
        world.put("a")
        await anext(client.consume("orders", start=OLDEST))
        with pytest.raises(ConfigurationError, match="calls no handlers"):
            await client.refresh({"orders": log.order})


# --- what is refused before the client starts ---


async def test_mappings_that_cannot_work_are_refused(world: World) -> None:
    log = Log()
    cases: list[tuple[dict[Any, Any], dict[str, Any], str]] = [
        ({}, {}, "no stream to consume"),
        ({"orders": log.order}, {"handler": log.order}, "leave one of them out"),
        ({"orders": log.order, Stream("orders"): log.refund}, {}, "named twice"),
        ({"orders": None}, {}, "handler of stream orders: handler=None must be"),
        (
            {"orders": Handler(log.order, concurrency=0)},
            {},
            "handler of stream orders: concurrency=0",
        ),
        ({"orders": log.order}, {"retries": 3}, "retries=3 must be a RetryPolicy"),
        ({7: log.order}, {}, "7 must be a stream"),
        (
            {"orders": log.order},
            {"decode": {"payments": int}},
            "decode= names 'payments', which has no handler",
        ),
        (
            {
                Stream("orders", region="eu-west-1"): log.order,
                Stream("orders"): log.order,
            },
            {"decode": {"orders": int}},
            "several streams have this name",
        ),
        (
            {"orders": Handler(log.order, decode=int)},
            {"decode": {"orders": str}},
            "handler of stream orders: decode= is given for it twice",
        ),
        ({"orders": log.order}, {"decode": {"orders": 7}}, "7 is not a type"),
    ]
    async with InMemory(world) as client:
        for handlers, options, why in cases:
            with pytest.raises(ConfigurationError, match=why):
                await client.run(handlers, **options)
        with pytest.raises(ConfigurationError, match="needs a handler for each"):
            no_type: Any = {"orders": int}
            await client.run("orders", log.order, decode=no_type)
        with pytest.raises(ConfigurationError, match="give consume\\(\\) the streams"):
            client.consume({"orders": log.order})  # type: ignore[call-overload]


def test_a_handlers_own_failure_policy_ignores_that_of_run() -> None:
    handler = Log().order
    stops = Handler(handler, on_failure="stop-shard")
    assert read_run_options(stops, dead_letters="file:x").dead_letters is None
    stores = Handler(handler, dead_letters="file:y")
    options = read_run_options(stores, on_failure="stop-client")
    assert (options.on_failure, options.dead_letters) == ("dead-letter", "file:y")
    stores = Handler(handler, on_failure="dead-letter")
    assert read_run_options(stores, dead_letters="file:x").dead_letters == "file:x"
