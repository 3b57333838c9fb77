"""Register, list and use the consumers of a stream (enhanced fan-out)."""

from __future__ import annotations

import asyncio
import math
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
from kinesumer.model.streams import CONSUMER_ARN, check_consumer, consumer_name
from kinesumer.ports import StreamSource
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import cancel_and_wait

# How often a client that polls instead tries fan-out again. Chosen: what it lacks is
# often a permission or a quota, and all clients share the few calls of an account.
FALLBACK_SECONDS = 180.0
# The longest wait for a consumer to become ACTIVE, which usually takes some seconds.
ACTIVE_SECONDS = 60.0
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


class Consumer:
    """The stream consumer of one app, and whether the client can use it.

    With ``falls_back``, the client polls while it can't use the consumer, and tries
    again every FALLBACK_SECONDS.
    """

    def __init__(self, source: FanOutCalls, fan_out: str, *, falls_back: bool) -> None:
        self.name: str = consumer_name(fan_out)
        self._fan_out = fan_out
        self.problem: str = ""  # why the client polls
        self._source = source
        self._falls_back = falls_back
        self._arn: str | None = None
        self._next_try = -math.inf
        self._trying: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find or register the consumer. Raise an error if that is not possible.

        Raise ConfigurationError for the ARN of another stream's consumer.
        """
        if CONSUMER_ARN.fullmatch(self._fan_out):
            # The stream may have been given by its name, which other accounts have,
            # too.
            check_consumer(self._fan_out, await self._source.arn())
        try:
            self._arn = await self._find()
        except KinesumerError as error:
            if not self.lost(error):
                raise

    async def _find(self) -> str:
        arn = self._fan_out
        if not CONSUMER_ARN.fullmatch(arn):
            consumers = StreamConsumers(self._source)
            arn = (await consumers.require_active(self.name)).arn
        await self._source.require_direct_calls(arn)
        return arn

    def arn(self) -> str | None:
        """Return the consumer's ARN, or None while the client polls instead."""
        loop = asyncio.get_running_loop()
        if self._arn is None and loop.time() >= self._next_try:
            # Try in a task, so that no reader waits for the consumer.
            self._next_try = loop.time() + FALLBACK_SECONDS
            self._trying = loop.create_task(self.open())
        return self._arn

    def lost(self, error: KinesumerError) -> bool:
        """Poll from now on, because of an error. Return False if that is not wanted."""
        if not self._falls_back:
            return False
        self._arn = None
        self._next_try = asyncio.get_running_loop().time() + FALLBACK_SECONDS
        if not self.problem:
            logger.warning(
                "%s: polling instead of fan-out with consumer %s: %s",
                self._source.label,
                self.name,
                error,
            )
        self.problem = str(error)
        return True

    def works(self) -> None:
        """Note that a subscription began."""
        if self.problem:
            logger.info(
                "%s: reading by fan-out with consumer %s again",
                self._source.label,
                self.name,
            )
        self.problem = ""

    async def close(self) -> None:
        """End a running try."""
        if self._trying is not None:
            await cancel_and_wait(self._trying)
