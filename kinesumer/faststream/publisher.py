"""Declare the streams into which an application publishes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, Unpack

from faststream._internal.configs import PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import (
    PublisherSpecification,
    PublisherUsecase,
)
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.types import PublisherMiddleware
from faststream.response import PublishCommand

from kinesumer.faststream.config import KinesisBrokerConfig, prefixed
from kinesumer.faststream.producer import refuse_request
from kinesumer.faststream.response import (
    KinesisPublishCommand,
    PublishKeywords,
    RecordKeywords,
)


class PublisherKeywords(RecordKeywords, total=False):
    """The keyword arguments of ``publisher()``."""

    reply_to: str
    batch: bool
    persistent: bool
    title: str | None
    description: str | None
    schema: Any
    include_in_schema: bool


class KinesisPublisher(PublisherUsecase):
    """Publishes into one stream: as a decorator of handlers, or by ``publish()``."""

    _outer_config: KinesisBrokerConfig

    def __init__(
        self,
        config: PublisherUsecaseConfig,
        specification: PublisherSpecification[Any, Any],
        stream: str,
        options: PublisherKeywords,
    ) -> None:
        super().__init__(config, specification)
        self._stream, self._options = stream, options
        self.sends_batches: bool = options.get("batch", False)

    @property
    def stream(self) -> str:
        """The stream's name or ARN."""
        return prefixed(self._outer_config, self._stream)

    async def publish(
        self, message: Any, stream: str = "", **options: Unpack[PublishKeywords]
    ) -> Any:
        """Publish a message, as ``KinesisBroker.publish()`` does.

        What is not given is what the publisher was declared with. A publisher with
        ``batch`` takes a sequence of messages, and returns a list of results.
        """
        cmd = KinesisPublishCommand(message, destination=stream, **options)
        return await self._publish(cmd, _extra_middlewares=())

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> Any:
        options, is_batch = self._options, self.sends_batches
        made = KinesisPublishCommand.from_cmd(cmd, batch=is_batch)
        made.destination = made.destination or self.stream
        made.correlation_id = made.correlation_id or self._outer_config.id_generator()
        made.reply_to = made.reply_to or options.get("reply_to", "")
        made.add_headers(options.get("headers") or {}, override=False)
        if made.partition_key is None:
            made.partition_key = options.get("partition_key")
        if made.explicit_hash_key is None:
            made.explicit_hash_key = options.get("explicit_hash_key")
        send = self._basic_publish_batch if is_batch else self._basic_publish
        producer = self._outer_config.producer
        return await send(
            made, producer=producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a consumer of a stream cannot wait for one record."""
        refuse_request()


class ReplyPublisher(FakePublisher):
    """Publishes a handler's result into the stream that a message names."""

    def __init__(self, producer: Any, stream: str) -> None:
        super().__init__(producer=producer)
        self._stream = stream

    def patch_command(self, cmd: PublishCommand) -> KinesisPublishCommand:
        """Return what publishes the result as an answer."""
        made = KinesisPublishCommand.from_cmd(super().patch_command(cmd))
        made.destination = self._stream
        return made
