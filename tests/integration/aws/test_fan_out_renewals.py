"""Test how subscriptions are begun, renewed, replaced and released."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from kinesumer.aws.fan_out import CALL_SECONDS
from kinesumer.aws.kinesis_errors import SubscriptionInUseError
from kinesumer.aws.stream_consumers import FALLBACK_SECONDS
from kinesumer.consuming.page_fetch import NoRoomError
from kinesumer.errors import (
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
    KeyUnavailableError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import FanOutUse, Start
from kinesumer.wire.event_stream import Frame
from tests.support.reservations import Room
from tests.support.scripted_fan_out import (
    POLLED,
    SHARD,
    ScriptedCalls,
    Subscriber,
    event,
)
from tests.support.world import World

LATEST = Start.LATEST
TIME_IS_OVER = None  # an event stream that ends without an error
INITIAL_RESPONSE = Frame("event", "initial-response", b"{}")
DENIED = FatalError("not authorized to perform kinesis:SubscribeToShard")


def exception(code: str) -> Frame:
    return Frame("exception", code, b'{"message":"sorry"}')


def texts(page: Page) -> list[str]:
    return [record.data.decode() for record in page.records]


# --- positions ---


async def test_a_renewal_begins_after_the_last_event(world: World) -> None:
    reader = Subscriber()
    page = await reader.read(await reader.begin(), event("a", continuation="7"))
    page = await reader.read(page.next_iterator, event("b", continuation="8"))
    renewing = asyncio.ensure_future(reader.read(page.next_iterator, TIME_IS_OVER))
    await asyncio.sleep(3 * CALL_SECONDS)
    reader.last.send(event("c", continuation="9"))
    assert texts(await renewing) == ["c"]
    first, second = reader.calls.streams
    assert first.position == {"Type": "TRIM_HORIZON"}
    assert second.position == {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "8"}
    assert first.is_closed
    assert not second.is_closed


async def test_an_event_without_records_moves_the_position_on(world: World) -> None:
    # A subscription that was renewed at LATEST would skip what has come meanwhile.
    reader = Subscriber()
    page = await reader.read(await reader.begin(Start.LATEST), event(continuation="7"))
    assert page.records == []
    renewing = asyncio.ensure_future(reader.read(page.next_iterator, TIME_IS_OVER))
    await asyncio.sleep(3 * CALL_SECONDS)
    reader.last.send(event("a"))
    await renewing
    assert reader.last.position["SequenceNumber"] == "7"


async def test_an_older_iterator_begins_a_subscription_at_its_own_position(
    world: World,
) -> None:
    reader = Subscriber()
    first = await reader.begin(Position("5"))
    await reader.read(first, event("a"))
    again = asyncio.ensure_future(reader.source.get_records(first, 10_000))
    await asyncio.sleep(CALL_SECONDS)
    reader.last.send(event("a"))
    assert texts(await again) == ["a"]
    assert [stream.position for stream in reader.calls.streams] == [
        {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "5"}
    ] * 2
    assert reader.calls.streams[0].is_closed


async def test_the_first_response_of_a_subscription_is_no_event(world: World) -> None:
    reader = Subscriber()
    page = await reader.read(await reader.begin(), INITIAL_RESPONSE, event("a"))
    assert texts(page) == ["a"]


async def test_a_shard_that_has_ended_leaves_no_subscription(world: World) -> None:
    hash_keys = {"StartingHashKey": "0", "EndingHashKey": "9"}
    child = {"ShardId": "shardId-1", "ParentShards": [SHARD], "HashKeyRange": hash_keys}
    reader = Subscriber()
    last = event("a", continuation=None, children=[child])
    page = await reader.read(await reader.begin(), last)
    assert page.next_iterator is None
    assert [shard.shard_id for shard in page.children] == ["shardId-1"]
    assert reader.last.is_closed


# --- memory ---


async def test_an_event_waits_for_memory_and_is_kept_meanwhile(world: World) -> None:
    async def stay_small() -> None:
        raise NoRoomError("the buffer is full")

    async def become_large() -> None:
        room.size = 1000

    reader, room = Subscriber(), Room(wait=stay_small)
    iterator = await reader.begin()
    first = event("a", continuation="7")
    for _ in range(2):
        reading = asyncio.ensure_future(reader.source.get_records(iterator, 1, room))
        await asyncio.sleep(0.01)
        if len(room.asked) == 0:
            reader.last.send(first, event("b", continuation="8"))
        with pytest.raises(NoRoomError):
            await reading
    assert room.asked == [len(first.payload)] * 2
    room.wait = become_large
    page = await reader.source.get_records(iterator, 1, room)
    assert texts(page) == ["a"]
    assert page.next_iterator
    page = await reader.source.get_records(page.next_iterator, 1, room)
    assert texts(page) == ["b"]
    assert len(room.asked) == 3  # the last event had room
    assert len(reader.calls.streams) == 1


# --- failures of a subscription ---


async def test_an_exception_is_an_error_and_not_the_end_of_the_time(
    world: World,
) -> None:
    # A subscription that another client has replaced must not be taken back at once.
    reader = Subscriber()
    reader.calls.meanings["ResourceInUseException"] = SubscriptionInUseError("replaced")
    with pytest.raises(SubscriptionInUseError):
        await reader.read(await reader.begin(), exception("ResourceInUseException"))
    assert len(reader.calls.streams) == 1
    assert reader.last.is_closed


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError("reset")])
async def test_a_broken_subscription_is_closed(world: World, error: OSError) -> None:
    reader = Subscriber()
    iterator = await reader.begin()
    reading = asyncio.ensure_future(reader.source.get_records(iterator, 1))
    await asyncio.sleep(0.01)
    reader.last.send(error)
    with pytest.raises(
        SourceUnavailableError, match="orders, shardId-000000000000 broke"
    ):
        await reading
    assert reader.last.is_closed


async def test_a_cancelled_read_closes_its_subscription(world: World) -> None:
    reader = Subscriber()
    iterator = await reader.begin()
    reading = asyncio.ensure_future(reader.source.get_records(iterator, 1))
    await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.wait([reading])
    assert reader.last.is_closed


async def test_a_released_shard_has_no_subscription(world: World) -> None:
    reader = Subscriber()
    await reader.read(await reader.begin(), event("a"))
    reader.source.release(SHARD)
    reader.source.release("shardId-000000000001")  # it has none
    assert reader.last.is_closed


# --- a subscription that is too early ---


async def test_a_shards_calls_are_a_second_apart(world: World) -> None:
    """AWS permits one call of SubscribeToShard a second, consumer and shard."""
    reader = Subscriber()
    iterator: str | None = await reader.begin()
    for _ in range(5):
        page = await reader.read(iterator, event("a"), ConnectionResetError("reset"))
        iterator = page.next_iterator
        with pytest.raises(SourceUnavailableError):
            await reader.source.get_records(iterator or "", 1)
    waits = [after - before for before, after in pairwise(reader.calls.subscribed_at)]
    assert len(waits) == 4  # each subscription broke
    assert min(waits) >= CALL_SECONDS


async def test_shards_do_not_wait_for_each_other(world: World) -> None:
    reader = Subscriber()
    await reader.begin()
    shards = [await reader.source.get_iterator(f"shard-{n}", LATEST) for n in range(9)]
    reads = [reader.source.get_records(iterator, 1) for iterator in shards]
    reading = asyncio.gather(*reads)
    await asyncio.sleep(0.01)
    assert len(reader.calls.subscribed_at) == 9
    for stream in reader.calls.streams:
        stream.send(event("a"))
    await reading


async def test_a_subscription_in_use_is_replaced_as_soon_as_kinesis_permits(
    world: World,
) -> None:
    reader = Subscriber()
    calls = reader.calls
    # The former owner may have called less than a second ago.
    calls.refusals.append(SourceThrottledError("rate exceeded"))
    calls.refusals.extend(SubscriptionInUseError("in use") for _ in range(5))
    iterator = await reader.begin()
    reading = asyncio.ensure_future(reader.source.get_records(iterator, 1))
    await asyncio.sleep(6 * CALL_SECONDS + 0.01)
    reader.last.send(event("a"))
    assert texts(await reading) == ["a"]
    first = calls.subscribed_at[0]
    waits = [round(moment - first, 3) for moment in calls.subscribed_at]
    assert waits == [CALL_SECONDS * number for number in range(7)]


async def test_a_subscription_that_stays_in_use_is_given_up_in_time(
    world: World,
) -> None:
    reader = Subscriber(in_use_seconds=3.0)
    reader.calls.refusals.extend(SubscriptionInUseError("in use") for _ in range(100))
    iterator = await reader.begin()
    with pytest.raises(SourceThrottledError, match="in use"):
        await reader.source.get_records(iterator, 1)
    seconds = reader.calls.subscribed_at[-1] - reader.calls.subscribed_at[0]
    assert 3.0 <= seconds < 3.0 + 2 * CALL_SECONDS


# --- fallback ---


def tries(calls: ScriptedCalls) -> int:
    return calls.consumer_calls.count("DescribeStreamConsumer")


async def test_a_client_that_polls_tries_fan_out_once_in_each_interval(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinesumer")
    reader = Subscriber(falls_back=True)
    reader.calls.answers.extend([DENIED] * 3)
    assert await reader.begin() == POLLED
    assert reader.source.fan_out() == FanOutUse("billing", str(DENIED))
    for past in range(1, 3):
        for _ in range(10):
            await reader.source.get_records(POLLED, 1)
        assert tries(reader.calls) == past
        await asyncio.sleep(FALLBACK_SECONDS)
        await reader.source.get_records(POLLED, 1)
        await asyncio.sleep(1)
        assert tries(reader.calls) == past + 1
    assert len(caplog.records) == 1
    await asyncio.sleep(FALLBACK_SECONDS)
    await reader.source.get_records(POLLED, 1)
    await asyncio.sleep(1)
    with pytest.raises(ExpiredIteratorError):
        await reader.source.get_records(POLLED, 1)
    iterator = await reader.source.get_iterator(SHARD, Position("5"))
    page = await reader.read(iterator, event("a"))
    assert texts(page) == ["a"]
    assert reader.source.fan_out() == FanOutUse("billing")
    polls, pushes = caplog.messages
    assert "polling instead of fan-out with consumer billing" in polls
    assert "reading by fan-out with consumer billing again" in pushes


async def test_reads_go_on_while_fan_out_is_tried_once(world: World) -> None:
    reader = Subscriber(falls_back=True)
    reader.calls.answers.append(DENIED)
    await reader.begin()
    await asyncio.sleep(FALLBACK_SECONDS)
    reader.calls.consumer_seconds = 30.0
    began = world.loop.time()
    for _ in range(20):
        await reader.source.get_records(POLLED, 1)
        await asyncio.sleep(1)
    assert world.loop.time() - began < 21
    assert tries(reader.calls) == 2
    await reader.consumer.close()


@pytest.mark.parametrize("from_stream", [True, False])
async def test_a_client_polls_when_its_subscription_is_refused_for_good(
    world: World, from_stream: bool
) -> None:
    reader = Subscriber(falls_back=True)
    reader.calls.meanings["AccessDeniedException"] = DENIED
    iterator = await reader.begin()
    if not from_stream:
        reader.calls.refusals.append(DENIED)
    with pytest.raises(ExpiredIteratorError):
        if from_stream:
            await reader.read(iterator, exception("AccessDeniedException"))
        else:
            await reader.source.get_records(iterator, 1)
    assert reader.source.fan_out() == FanOutUse("billing", str(DENIED))
    assert await reader.source.get_iterator(SHARD, Position("5")) == POLLED


async def test_a_failure_that_passes_does_not_end_fan_out(world: World) -> None:
    reader = Subscriber(falls_back=True)
    reader.calls.meanings["InternalFailureException"] = SourceUnavailableError("sorry")
    with pytest.raises(SourceUnavailableError):
        await reader.read(await reader.begin(), exception("InternalFailureException"))
    assert reader.source.fan_out() == FanOutUse("billing")
    iterator = await reader.source.get_iterator(SHARD, Position("5"))
    assert reader.source.is_pushed(iterator)


@pytest.mark.parametrize("error", [InvalidPositionError, KeyUnavailableError])
async def test_what_polling_cannot_do_either_does_not_end_fan_out(
    world: World, error: type[FatalError]
) -> None:
    reader = Subscriber(falls_back=True)
    refused = error("not a number of this shard, or a disabled key")
    reader.calls.refusals.append(refused)
    reader.calls.polled_errors.append(refused)
    with pytest.raises(error):
        await reader.source.get_records(await reader.begin(), 1)
    assert reader.source.fan_out() == FanOutUse("billing")


async def test_a_denied_subscription_ends_a_client_without_fallback(
    world: World,
) -> None:
    reader = Subscriber()
    reader.calls.refusals.append(DENIED)
    with pytest.raises(FatalError, match="not authorized"):
        await reader.source.get_records(await reader.begin(), 1)
