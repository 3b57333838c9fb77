"""Test how subscribers start, how they end, and who continues."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from faststream import AckPolicy, FastStream
from faststream.exceptions import (
    FeatureNotSupportedException,
    StopApplication,
    StopConsume,
)

from kinesumer import KinesumerError, Producer, RetryPolicy, StreamMissingError
from kinesumer.dead_letters import DeadLetter
from kinesumer.faststream import KinesisBroker
from kinesumer.producer.pending import PutFuture, PutResult
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS, until
from tests.support.faststream_cases import OLDEST, Seen
from tests.support.producers import QUICK

pytestmark = pytest.mark.usefixtures("nobody_else_joins")


def new_broker(app: str = "billing", **options: Any) -> KinesisBroker:
    return KinesisBroker(app, config=QUICK, logger=None, **options)


async def consumed(count: int, **options: Any) -> list[str]:
    """Return the bodies of the next records, by a new broker of the same app."""
    seen, broker = Seen(), new_broker()

    @broker.subscriber("orders", **options, start=OLDEST)
    async def on_order(body: str) -> None:
        seen.add(body)

    async with broker:
        await broker.start()
        return await seen.take(count)


async def test_records_of_other_producers_are_messages_too(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    async with Producer("orders", aggregate=True) as producer:
        for data in (b'{"a": 1}', b"text", b"\xff"):
            await producer.put(data, partition_key="key")
    seen, broker = Seen(), new_broker()

    @broker.subscriber("orders", start=OLDEST)
    async def on_order(body: Any) -> None:
        seen.add(body)

    async with broker:
        await broker.start()
        assert await seen.take(3) == [{"a": 1}, b"text", b"\xff"]


@pytest.mark.parametrize(
    ("policy", "next_body"),
    [(AckPolicy.NACK_ON_ERROR, "b"), (AckPolicy.ACK, "c")],
)
async def test_a_handler_stops_its_subscriber_and_the_policy_says_where(
    kinesumer_aws: EmbeddedAws, policy: AckPolicy, next_body: str
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    for body in (b"a", b"b", b"c", b"d"):
        kinesumer_aws.put("orders", body, "key")
    broker, called = new_broker(), []
    letters: list[DeadLetter] = []

    async def keep(letter: DeadLetter) -> None:
        letters.append(letter)

    @broker.subscriber(
        "orders",
        ack_policy=policy,
        start=OLDEST,
        retries=RetryPolicy(max_attempts=1),
        dead_letters=keep,
    )
    async def on_order(body: str) -> None:
        called.append(body)
        if body == "b":
            raise StopConsume

    async with broker:
        await broker.start()
        while await broker.ping():
            await asyncio.sleep(0.05)
        assert called == ["a", "b"]
    # The record at which it stops has not failed.
    assert letters == []
    assert await consumed(1) == [next_body]


async def test_a_handler_stops_the_application(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"a", "key")
    broker = new_broker()
    app = FastStream(broker, logger=None)

    @broker.subscriber("orders", start=OLDEST)
    async def on_order(body: str) -> None:
        raise StopApplication

    await asyncio.wait_for(app.run(), PATIENCE_SECONDS)
    assert await consumed(1) == ["a"]


async def test_what_ends_the_consumption_ends_the_application_with_an_error(
    kinesumer_aws: EmbeddedAws, caplog: pytest.LogCaptureFixture
) -> None:
    broker = KinesisBroker("billing", config=QUICK, logger=logging.getLogger("app"))
    app = FastStream(broker, logger=None)

    @broker.subscriber("missing")
    async def on_order(body: str) -> None: ...

    with pytest.raises(ExceptionGroup) as group:
        await asyncio.wait_for(app.run(), PATIENCE_SECONDS)
    assert isinstance(group.value.exceptions[0], StreamMissingError)
    assert "consumption ends: No stream 'missing'" in caplog.text


async def test_a_subscriber_starts_and_stops_while_the_broker_runs(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    seen, broker = Seen(), new_broker()
    async with broker:
        await broker.start()
        subscriber = broker.subscriber("orders", persistent=False, start=OLDEST)

        @subscriber
        async def on_order(body: str) -> None:
            seen.add(body)

        await subscriber.start()
        await broker.publish("a", "orders")
        assert await seen.take(1) == ["a"]
        await subscriber.stop()
        await broker.publish("b", "orders")
        await subscriber.start()
        assert await seen.take(1) == ["b"]


async def test_a_stop_waits_for_the_handler(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    broker, began, go_on = new_broker(), asyncio.Event(), asyncio.Event()
    done = []

    @broker.subscriber("orders", start=OLDEST)
    async def on_order(body: str) -> None:
        began.set()
        await go_on.wait()
        done.append(body)

    async with broker:
        await broker.start()
        await broker.publish("a", "orders")
        await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
        asyncio.get_running_loop().call_later(0.5, go_on.set)
    assert done == ["a"]
    kinesumer_aws.put("orders", b"b", "key")
    assert await consumed(1) == ["b"]


async def test_a_handler_may_stop_its_subscriber_while_the_broker_stops(
    kinesumer_aws: EmbeddedAws, caplog: pytest.LogCaptureFixture
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    broker, began, go_on = new_broker(), asyncio.Event(), asyncio.Event()

    @broker.subscriber("orders", start=OLDEST)
    async def on_order(body: str) -> None:
        began.set()
        await go_on.wait()
        raise StopConsume

    async with broker:
        await broker.start()
        await broker.publish("a", "orders")
        await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
        asyncio.get_running_loop().call_later(0.5, go_on.set)
    assert "the handler failed" not in caplog.text
    assert await consumed(1) == ["a"]


async def test_subscribers_of_two_apps_get_each_record(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    seen, broker = Seen(), new_broker()

    @broker.subscriber("orders", client_id="one", start=OLDEST)
    async def on_order(body: str) -> None:
        seen.add("billing")

    @broker.subscriber("orders", app="audit", client_id="one", start=OLDEST)
    async def on_audited(body: str) -> None:
        seen.add("audit")

    async with broker:
        await broker.start()
        await broker.publish("a", "orders")
        assert {*await seen.take(2)} == {"billing", "audit"}


async def test_without_handlers_messages_are_iterated_over(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    broker = new_broker()
    subscriber = broker.subscriber("orders", start=OLDEST)
    async with broker:
        await broker.start()
        assert await subscriber.get_one(timeout=0.01) is None
        for body in ("a", "b", "c"):
            await broker.publish(body, "orders", partition_key="key")
        message = await subscriber.get_one(timeout=PATIENCE_SECONDS)
        assert message is not None and await message.decode() == "a"
        async for message in subscriber:
            assert await message.decode() == "b"
            break
    assert await consumed(1) == ["c"]


async def test_a_subscriber_with_handlers_or_batches_has_no_iteration() -> None:
    broker = new_broker()
    subscriber = broker.subscriber("orders")
    subscriber(lambda body: None)
    for each in (subscriber, broker.subscriber("orders", batch=True)):
        with pytest.raises(FeatureNotSupportedException, match="declare another one"):
            await each.get_one()


async def test_a_put_returns_its_place_or_its_future(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    async with new_broker() as broker:
        result = await broker.publish("a", "orders", explicit_hash_key="0")
        assert isinstance(result, PutResult)
        assert result.shard_id == "shardId-000000000000"
        [future] = await broker.publish_batch("b", stream="orders", no_confirm=True)
        assert isinstance(future, PutFuture) and (await future).sequence_number
        late = await broker.publish("c", "orders", no_confirm=True)
    assert late.done()
    with pytest.raises(KinesumerError, match="connect"):
        await broker.publish("d", "orders")


async def test_the_broker_is_dead_when_a_subscriber_has_ended(
    kinesumer_aws: EmbeddedAws,
) -> None:
    broker = new_broker()
    broker.subscriber("missing")(lambda body: None)
    assert not await broker.ping()
    await broker.start()
    assert await broker.ping()
    await until(lambda: not all(s.is_consuming for s in broker.subscribers))  # type: ignore[attr-defined]
    assert not await broker.ping()
    with pytest.raises(ExceptionGroup):
        await broker.stop()
