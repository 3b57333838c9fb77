"""Register, describe and list the consumers of a stream (enhanced fan-out)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from kinesumer.aws.errors import translated_errors
from kinesumer.core.backoff import LOOK_SECONDS
from kinesumer.errors import (
    ConfigurationError,
    FatalError,
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.ports import StreamSource

ACTIVE_SECONDS = 60.0  # the longest wait for a consumer to become ACTIVE
MAX_CONSUMERS = 20  # AWS's default quota of a stream
QUOTA = (
    f"AWS permits {MAX_CONSUMERS} for a stream, or 50 in the mode On-demand Advantage, "
    "and a queue of the stream counts as one"
)
# With this text, AWS refuses a call because of the rate of the calls.
_RATE = "rate exceeded"
NO_TAGS: Mapping[str, str] = MappingProxyType({})


class FanOutCalls(StreamSource, Protocol):
    """A stream's source, with the calls that fan-out needs. See ``KinesisSource``."""

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        ...

    async def arn(self) -> str:
        """Return the stream's ARN."""
        ...

    async def require_direct_calls(self, consumer_arn: str) -> None:
        """Raise ConfigurationError if the user's settings prevent subscriptions."""
        ...

    async def call_of_consumer(
        self, operation: str, arguments: Mapping[str, object]
    ) -> Any:
        """Make a call about the stream's consumers, and return its response."""
        ...

    async def error_of_subscription(
        self, code: str, text: str, shard_id: str
    ) -> KinesumerError:
        """Return the error that an exception in an event stream means."""
        ...


class StreamConsumer(NamedTuple):
    """A registered consumer of a stream."""

    name: str
    arn: str
    status: str  # CREATING, DELETING or ACTIVE
    created_at: float  # seconds since 1970


class _Consumer(msgspec.Struct):
    name: str = msgspec.field(name="ConsumerName")
    arn: str = msgspec.field(name="ConsumerARN")
    status: str = msgspec.field(name="ConsumerStatus")
    created: Any = msgspec.field(name="ConsumerCreationTimestamp")

    def read(self) -> StreamConsumer:
        return StreamConsumer(
            self.name, self.arn, self.status, self.created.timestamp()
        )


class StreamConsumers:
    """The registered consumers of one stream."""

    def __init__(self, source: FanOutCalls) -> None:
        self._source = source

    async def find(self, name: str) -> StreamConsumer | None:
        """Return a consumer by its name, or None if it is not registered."""
        answer = await self._source.call_of_consumer(
            "DescribeStreamConsumer", {"ConsumerName": name}
        )
        if answer is None:
            return None
        with translated_errors("DescribeStreamConsumer", SourceUnavailableError):
            return msgspec.convert(answer["ConsumerDescription"], _Consumer).read()

    async def register(self, name: str, tags: Mapping[str, str] = NO_TAGS) -> None:
        """Register a consumer with tags. Do nothing if it exists already."""
        arguments: dict[str, object] = {"ConsumerName": name}
        if tags:  # they need the right kinesis:TagResource
            arguments["Tags"] = dict(tags)
        await self._source.call_of_consumer("RegisterStreamConsumer", arguments)

    async def deregister(self, name: str) -> None:
        """Deregister a consumer. Do nothing if it does not exist."""
        await self._source.call_of_consumer(
            "DeregisterStreamConsumer", {"ConsumerName": name}
        )

    async def list(self) -> list[StreamConsumer]:
        """Return all registered consumers of the stream."""
        consumers: list[StreamConsumer] = []
        arguments: dict[str, object] = {}
        while True:
            answer = await self._source.call_of_consumer(
                "ListStreamConsumers", arguments
            )
            if answer is None:
                return consumers
            with translated_errors("ListStreamConsumers", SourceUnavailableError):
                page = msgspec.convert(answer["Consumers"], list[_Consumer])
                consumers += [consumer.read() for consumer in page]
            token = answer.get("NextToken")
            if not token:
                return consumers
            arguments = {"NextToken": token}

    async def require_active(
        self, name: str, tags: Mapping[str, str] = NO_TAGS
    ) -> StreamConsumer:
        """Return an active consumer. Register it with these tags if it is missing.

        After ACTIVE_SECONDS, raise FatalError if it is not active, and
        SourceUnavailableError if Kinesis does not answer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ACTIVE_SECONDS
        has_registered = False
        while True:
            try:
                consumer = await self.find(name)
                if consumer is None and not has_registered:
                    await self._register(name, tags)
                    has_registered = True
                    continue
            except SourceUnavailableError:
                if loop.time() >= deadline:
                    raise
            else:
                status = "missing" if consumer is None else consumer.status
                if consumer is not None and status == "ACTIVE":
                    return consumer
                if loop.time() >= deadline:
                    raise FatalError(
                        f"stream consumer {name!r} of {self._source.label} is "
                        f"{status} after {ACTIVE_SECONDS:g} s instead of ACTIVE; look "
                        "at it with `kinesumer fan-out list`, then start again"
                    )
            await asyncio.sleep(LOOK_SECONDS)

    async def _register(self, name: str, tags: Mapping[str, str]) -> None:
        try:
            await self.register(name, tags)
        except SourceThrottledError as error:
            # AWS uses the same error for too many calls and for too many consumers.
            if _RATE in str(error).lower():
                raise
            if (count := len(await self.list())) >= MAX_CONSUMERS:
                raise ConfigurationError(
                    f"can't register stream consumer {name!r}: {self._source.label} "
                    f"has {count} registered consumers ({QUOTA}); deregister one with "
                    f"`kinesumer fan-out deregister`, or raise the quota: {error}"
                ) from None
            raise
