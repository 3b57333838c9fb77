"""Test an application of FastStream's without AWS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from faststream._internal.testing.broker import (
    EnterType,
    TestBroker,
    change_producer,
)

from kinesumer.faststream.broker import KinesisBroker
from kinesumer.faststream.producer import KinesisProducer
from kinesumer.faststream.publisher import KinesisPublisher
from kinesumer.faststream.response import KinesisPublishCommand
from kinesumer.faststream.subscriber import KinesisSubscriber
from kinesumer.producer.client import Producer
from kinesumer.producer.pending import PutResult
from kinesumer.testing.values import batch, record


class TestKinesisBroker(TestBroker[KinesisBroker, EnterType], broker=KinesisBroker):
    """Gives what is published to the subscribers at once, in memory.

    Use it as ``async with TestKinesisBroker(broker) as broker:``. An error of a handler
    is raised by ``publish()``. With ``with_real=True``, the broker uses AWS.
    """

    def create_publisher_fake_subscriber(
        self, broker: KinesisBroker, publisher: KinesisPublisher
    ) -> tuple[KinesisSubscriber, bool]:
        """Return a publisher's subscriber, and whether it is the user's."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.reads(publisher.stream):
                return subscriber, True
        is_batch = publisher.sends_batches
        made = broker.subscriber(publisher.stream, batch=is_batch, persistent=False)
        return made, False

    @contextmanager
    def _patch_producer(self, broker: KinesisBroker) -> Iterator[None]:
        producer = _MemoryProducer(broker, self.brokers)
        with change_producer(broker.config.broker_config, producer):
            yield

    async def _fake_connect(self, broker: KinesisBroker, *_: Any, **__: Any) -> None:
        producer: Any = broker.config.producer
        producer.connect(broker.config.fd_config._serializer)


class _MemoryProducer(KinesisProducer):
    """Calls the subscribers of a stream in place of putting a record."""

    def __init__(self, broker: KinesisBroker, brokers: Sequence[KinesisBroker]) -> None:
        super().__init__(Producer, broker.config.broker_codec)
        self._brokers, self._app = brokers, broker.config.app

    async def publish(self, cmd: KinesisPublishCommand) -> Any:
        """Process a message. Return what the real broker returns."""
        [result] = await self._deliver(cmd, [cmd.body])
        return result

    async def publish_batch(self, cmd: KinesisPublishCommand) -> Any:
        """Process messages: subscribers that take batches get them as one batch."""
        return await self._deliver(cmd, cmd.batch_bodies)

    async def _deliver(
        self, cmd: KinesisPublishCommand, bodies: Sequence[Any]
    ) -> list[PutResult] | list[asyncio.Future[PutResult]]:
        records = [
            record(
                await self.encode(cmd, body),
                partition_key=cmd.partition_key or cmd.correlation_id,
                stream=cmd.destination,
                app=self._app,
            )
            for body in bodies
        ]
        for subscriber in _subscribers(self._brokers):
            if records and subscriber.reads(cmd.destination):
                items = [batch(records)] if subscriber.takes_batches else records
                for item in items:
                    await subscriber.process_message(item)
        places = [PutResult(each.shard_id, each.sequence_number) for each in records]
        return [_done(place) for place in places] if cmd.no_confirm else places


def _done(place: PutResult) -> asyncio.Future[PutResult]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(place)
    return future


def _subscribers(brokers: Sequence[KinesisBroker]) -> list[KinesisSubscriber]:
    found = [subscriber for broker in brokers for subscriber in broker.subscribers]
    return [each for each in found if isinstance(each, KinesisSubscriber)]
