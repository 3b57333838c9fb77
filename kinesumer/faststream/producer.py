"""Put FastStream's messages into streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, NoReturn

from fast_depends.library.serializer import SerializerProto
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import NOT_CONNECTED_YET, FeatureNotSupportedException

from kinesumer.errors import KinesumerError
from kinesumer.faststream import envelope
from kinesumer.faststream.message import decode_record, parse_record
from kinesumer.faststream.response import KinesisPublishCommand
from kinesumer.producer.client import Producer
from kinesumer.producer.pending import PutFuture, PutResult


class KinesisProducer(ProducerProto[KinesisPublishCommand]):
    """Puts messages into any stream, through one ``Producer`` for each."""

    def __init__(
        self,
        new_producer: Callable[[str], Producer],
        codec: CodecProto | None,
    ) -> None:
        self._new_producer = new_producer
        self._parser, self._decoder = parse_record, decode_record
        self.codec = codec or DefaultCodec()
        self._serializer: SerializerProto | None = None
        self._producers: dict[str, Producer] | None = None
        self._opened, self._opening = AsyncExitStack(), asyncio.Lock()

    def connect(self, serializer: SerializerProto | None) -> None:
        """Permit ``publish()``. It opens the producer of a stream when it needs it."""
        self._serializer, self._producers = serializer, {}

    async def disconnect(self) -> None:
        """Wait until all messages are put. Raise PutFailedError."""
        self._producers = None
        await self._opened.aclose()

    async def publish(self, cmd: KinesisPublishCommand) -> PutResult | PutFuture:
        """Put a message. Unless ``no_confirm``, wait until Kinesis has stored it.

        Raises what ``Producer.put()`` raises.
        """
        future = await self._put(cmd, cmd.body)
        return future if cmd.no_confirm else await future

    async def publish_batch(
        self, cmd: KinesisPublishCommand
    ) -> list[PutResult] | list[PutFuture]:
        """Put the messages of a command, as ``publish()`` does."""
        futures = [await self._put(cmd, body) for body in cmd.batch_bodies]
        return futures if cmd.no_confirm else [await future for future in futures]

    async def request(self, cmd: KinesisPublishCommand) -> NoReturn:
        """Refuse: a consumer of a stream cannot wait for one record."""
        refuse_request()

    async def encode(self, cmd: KinesisPublishCommand, body: Any) -> bytes:
        """Return a message as the data of a record."""
        data, content_type = await self.codec.encode(body, self._serializer)
        headers = {"content-type": content_type} if content_type else {}
        return envelope.encode(data, headers | cmd.record_headers)

    async def _put(self, cmd: KinesisPublishCommand, body: Any) -> PutFuture:
        producer = await self._producer(cmd.destination)
        return await producer.put(
            await self.encode(cmd, body),
            partition_key=cmd.partition_key or cmd.correlation_id,
            explicit_hash_key=cmd.explicit_hash_key,
        )

    async def _producer(self, stream: str) -> Producer:
        async with self._opening:
            if self._producers is None:
                raise KinesumerError(NOT_CONNECTED_YET)
            if stream not in self._producers:
                opened = self._opened.enter_async_context(self._new_producer(stream))
                self._producers[stream] = await opened
            return self._producers[stream]


def refuse_request() -> NoReturn:
    """Raise what all requests raise."""
    raise FeatureNotSupportedException(
        "Kinesis has no requests, because a consumer of a stream cannot wait for one "
        "record: publish with reply_to=, and subscribe to that stream"
    )
