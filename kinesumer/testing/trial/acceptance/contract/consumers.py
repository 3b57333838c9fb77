"""The properties of stream consumers and their subscriptions (enhanced fan-out)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Self

from kinesumer.errors import (
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
    ShardMissingError,
    SourceThrottledError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.ports import StreamSource
from kinesumer.runtime.tasks import cancel_and_wait
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    expect,
    expect_equal,
    expect_error,
    registrar,
)
from kinesumer.testing.trial.acceptance.contract.source import (
    ARRIVAL_SECONDS,
    HALF,
    NO_SHARD,
    arrival,
    one_shard,
)
from kinesumer.testing.trial.acceptance.resources import ACTIVE_SECONDS, Streams

CONSUMER_CHECKS: list[Check[[Streams, str]]] = []
check = registrar(CONSUMER_CHECKS)


# --- consumers ------------------------------------------------------------------------


@check(1)
async def a_registered_consumer_becomes_active_and_is_found(
    streams: Streams, name: str
) -> None:
    before = streams.now()
    await streams.create(name)
    consumers = await streams.consumers(name)
    expect_equal(await consumers.find("billing"), None)
    active = await consumers.require_active("billing")
    stream = await (await streams.source(name)).describe()
    created_at = active.arn.removeprefix(f"{stream.arn}/consumer/billing:")
    expect(created_at.isdecimal(), f"the ARN {active.arn} has no creation time")
    expect_equal((active.name, active.status), ("billing", "ACTIVE"))
    is_new = before - 5 <= active.created_at <= streams.now() + 2
    expect(is_new, f"created at {active.created_at}, after {before}")
    expect_equal(await consumers.find("billing"), active)
    await consumers.register("billing")  # it exists, and isn't registered again
    expect_equal(await consumers.list(), [active])


@check(2)
async def each_stream_has_consumers_of_its_own(streams: Streams, name: str) -> None:
    other = f"{name}-other"
    for stream in (name, other):
        await streams.create(stream)
    consumers = await streams.consumers(name)
    expect_equal(await consumers.list(), [])
    for consumer in ("billing", "audit"):
        await consumers.require_active(consumer)
    listed = {consumer.name for consumer in await consumers.list()}
    expect_equal(listed, {"billing", "audit"})
    others = await streams.consumers(other)
    expect_equal(await others.list(), [])
    expect_equal(await others.find("billing"), None)


@check(1)
async def a_deregistered_consumer_is_gone(streams: Streams, name: str) -> None:
    await streams.create(name)
    consumers = await streams.consumers(name)
    await consumers.deregister("billing")  # it does not exist
    former = await consumers.require_active("billing")
    await consumers.deregister("billing")
    for _ in range(round(ACTIVE_SECONDS)):
        if await consumers.find("billing") is None:
            break
        await streams.pause(1)
    else:
        expect(False, "the consumer is still there after its deregistration")
    expect_equal(await consumers.list(), [])
    await streams.pause(1.1)
    again = await consumers.require_active("billing")
    expect(again.arn != former.arn, f"the ARN {again.arn} is the same")


@check(0)
async def the_consumers_of_a_missing_stream_are_missing(
    streams: Streams, name: str
) -> None:
    consumers = await streams.consumers(name)
    for call in (
        consumers.find("billing"),
        consumers.list(),
        consumers.register("billing"),
        consumers.deregister("billing"),
    ):
        with expect_error(StreamMissingError, name):
            await call


# --- subscriptions --------------------------------------------------------------------


@check(1)
async def records_are_pushed_as_they_were_put(streams: Streams, name: str) -> None:
    _, shard = await one_shard(streams, name)
    put = [
        (await streams.put(name, data, key))[1]
        for data, key in (
            (bytes(range(256)), "a"),
            (b"\x00", 'ünïcödé "key" \\'),
            (b"x" * 500_000, "k" * 256),
        )
    ]
    source = await streams.fan_out(name, "billing")
    iterator: str | None = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    records: list[Record] = []
    async with asyncio.timeout(ARRIVAL_SECONDS):
        while len(records) < 3:
            expect(source.is_pushed(iterator or ""), "the shard isn't pushed")
            page = await source.get_records(iterator or "", 10)
            records += page.records
            iterator = page.next_iterator
    source.release(shard.shard_id)
    expect_equal([record.sequence_number for record in records], put)
    data = [bytes(range(256)), b"\x00", b"x" * 500_000]
    expect_equal([record.data for record in records], data)
    keys = [record.partition_key for record in records]
    expect_equal(keys, ["a", 'ünïcödé "key" \\', "k" * 256])
    age = streams.now() - arrival(records[0])
    expect(abs(age) < 120, f"a new record arrived {age:.0f} s ago")


@check(1)
async def a_subscription_begins_at_any_position_and_follows_the_shard(
    streams: Streams, name: str
) -> None:
    _, shard = await one_shard(streams, name)
    numbers = [(await streams.put(name, b"%d" % number))[1] for number in range(3)]
    hour_ago = Start(type="AT_TIMESTAMP", timestamp=streams.now() - 3600)
    cases: list[tuple[Position | Start, list[str]]] = [
        (Start.TRIM_HORIZON, ["0", "1", "2"]),
        (Position(numbers[0]), ["1", "2"]),
        # A part of the aggregate is unread, so its Kinesis record is sent again.
        (Position(numbers[1], 7), ["1", "2"]),
        (Position(numbers[2]), []),
        (hour_ago, ["0", "1", "2"]),
        (Start.LATEST, []),
    ]
    sources = [
        await streams.fan_out(name, f"app-{number}") for number in range(len(cases))
    ]
    async with AsyncExitStack() as stack:
        readers = []
        for source, (after, texts) in zip(sources, cases, strict=True):
            reading = SubscriptionReader(source, shard.shard_id, after)
            reader = await stack.enter_async_context(reading)
            await reader.change()
            expect_equal(await reader.until(len(texts)), texts, f"after {after}")
            readers.append(reader)
            await streams.pause(0.3)
        await streams.put(name, b"new")
        for reader, (after, texts) in zip(readers, cases, strict=True):
            found = await reader.until(len(texts) + 1)
            expect_equal(found, [*texts, "new"], f"after {after}")
            expect_equal(reader.errors, [], "errors")


@check(1)
async def a_later_subscription_takes_the_shard_over(
    streams: Streams, name: str
) -> None:
    _, shard = await one_shard(streams, name)
    async with AsyncExitStack() as stack:
        sources = [await streams.fan_out(name, "billing") for _ in range(2)]
        former = SubscriptionReader(sources[0], shard.shard_id)
        await stack.enter_async_context(former)
        await streams.put(name, b"a")
        await former.until(1)
        await streams.pause(Limits().subscription_replace_seconds + 0.2)
        later = SubscriptionReader(sources[1], shard.shard_id)
        await stack.enter_async_context(later)
        while not former.errors:
            await former.change()
        is_throttled = isinstance(former.errors[0], SourceThrottledError)
        expect(is_throttled, f"the former subscription: {former.errors[0]}")
        await former.stop()
        await streams.put(name, b"b")
        expect_equal(await later.until(2), ["a", "b"])
        expect_equal(later.errors, [], "errors")


@check(3)
async def a_split_shard_ends_with_its_children(streams: Streams, name: str) -> None:
    _, parent = await one_shard(streams, name)
    source = await streams.fan_out(name, "billing")
    async with SubscriptionReader(source, parent.shard_id) as reader:
        await streams.put(name, b"parent's")
        await reader.until(1)
        await streams.split(name, parent.shard_id)
        children = await reader.end()
        low_id, _ = await streams.put(name, b"low", hash_key=0)
        high_id, _ = await streams.put(name, b"high", hash_key=HALF)
        expected = [
            Shard(low_id, 0, HALF - 1, (parent.shard_id,)),
            Shard(high_id, HALF, HASH_KEYS - 1, (parent.shard_id,)),
        ]
        expect_equal(sorted(children), expected, "children")
        expect_equal(reader.texts, ["parent's"])
    source = await streams.fan_out(name, "billing")
    async with SubscriptionReader(source, low_id) as child:
        expect_equal(await child.until(1), ["low"])


@check(1)
async def a_missing_shard_is_told_from_a_missing_stream(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.fan_out(name, "billing")
    async with SubscriptionReader(source, NO_SHARD) as reader:
        with expect_error(ShardMissingError):
            await reader.end()


@check(1)
async def a_position_that_is_not_of_the_shard_is_refused(
    streams: Streams, name: str
) -> None:
    _, shard = await one_shard(streams, name)
    source = await streams.fan_out(name, "billing")
    async with SubscriptionReader(source, shard.shard_id, Position("12")) as reader:
        with expect_error(InvalidPositionError):
            await reader.end()


@check(1)
async def a_subscription_ends_with_its_consumer(streams: Streams, name: str) -> None:
    _, shard = await one_shard(streams, name)
    source = await streams.fan_out(name, "billing")
    async with SubscriptionReader(source, shard.shard_id) as reader:
        await reader.change()
        await (await streams.consumers(name)).deregister("billing")
        with expect_error(FatalError, "register it again"):
            await reader.end()


@check(1)
async def a_subscription_ends_with_its_stream(streams: Streams, name: str) -> None:
    _, shard = await one_shard(streams, name)
    source = await streams.fan_out(name, "billing")
    async with SubscriptionReader(source, shard.shard_id) as reader:
        await reader.change()
        await streams.delete(name)
        with expect_error(StreamMissingError):
            await reader.end()


# --- the reader of a subscription -----------------------------------------------------


class SubscriptionReader:
    """Reads a shard as a client does, and keeps what it gets.

    All waits end with TimeoutError after ``deadline_seconds``. Every refusal is retried
    soon, so that a check sees the first moment at which the service permits a call.
    """

    def __init__(
        self,
        source: StreamSource,
        shard_id: str,
        after: Position | Start = Start.TRIM_HORIZON,
        deadline_seconds: float = ARRIVAL_SECONDS,
    ) -> None:
        self.texts: list[str] = []
        self.errors: list[SourceUnavailableError] = []
        self.children: Sequence[Shard] = ()
        self.events = 0
        self._source, self._shard_id, self._after = source, shard_id, after
        self._changed = asyncio.Event()
        self._deadline = asyncio.get_running_loop().time() + deadline_seconds
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def until(self, count: int) -> list[str]:
        """Wait for some records, and return all. Raise the error of the reading."""
        while len(self.texts) < count:
            await self.change()
        return self.texts

    async def change(self) -> None:
        """Wait for the next page or error. Raise a fatal error."""
        if self._task.done():
            self._task.result()
            raise CheckFailedError(f"the shard has ended after {self.texts}")
        self._changed.clear()
        async with asyncio.timeout_at(self._deadline):
            await self._changed.wait()

    async def end(self) -> Sequence[Shard]:
        """Wait for the shard's end, and return its children."""
        async with asyncio.timeout_at(self._deadline):
            await self._task
        return self.children

    async def stop(self) -> None:
        """Stop reading."""
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        iterator: str | None = None
        try:
            while True:
                try:
                    if iterator is None:
                        iterator = await self._find()
                    page = await self._source.get_records(iterator, 10_000)
                except ExpiredIteratorError:
                    iterator = None
                    continue
                except SourceUnavailableError as error:
                    self.errors.append(error)
                    self._changed.set()
                    iterator = None
                    await asyncio.sleep(0.02)
                    continue
                self.texts += [record.data.decode() for record in page.records]
                self.events += 1
                if page.records:
                    self._after = Position(page.records[-1].sequence_number)
                self._changed.set()
                iterator = page.next_iterator
                if iterator is None:
                    self.children = page.children
                    return
        finally:
            self._source.release(self._shard_id)

    async def _find(self) -> str:
        return await self._source.get_iterator(self._shard_id, self._after)
