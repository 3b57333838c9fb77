"""Read shards by subscriptions (enhanced fan-out), behind the port of polling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from kinesumer.aws.kinesis import open_source
from kinesumer.aws.polling import subscription_position
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import Consumer, FanOutCalls
from kinesumer.core.lineage import NextStep, after_page
from kinesumer.errors import (
    ConfigurationError,
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
    KeyUnavailableError,
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import FanOutUse, Shard, Start, Stream, StreamInfo
from kinesumer.ports import Reservation, StreamSource
from kinesumer.runtime.text import SECRETS
from kinesumer.runtime.threads import refusal_errors
from kinesumer.wire.event_stream import Frame, decode_event, fault_message

# Five seconds after a subscription began, another one may replace it.
REPLACE_SECONDS = 5.0
# AWS permits one call of SubscribeToShard a second for each consumer and shard.
CALL_SECONDS = 1.0
# The last client's call may also have been less than a second ago.
IN_USE_SECONDS = REPLACE_SECONDS + 2 * CALL_SECONDS


class EventStream(Protocol):
    """A response whose frames are read one after the other."""

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end.

        Raise OSError if the connection breaks or is silent, and SourceUnavailableError
        if a frame is corrupt.
        """
        ...

    def close(self) -> None:
        """Stop receiving."""
        ...


# Subscribes a consumer's ARN to a shard's id from a StartingPosition.
Subscribe = Callable[[str, str, Mapping[str, object]], Awaitable[EventStream]]
SUBSCRIPTION = "subscription:"


class SubscriptionToken(msgspec.Struct, array_like=True):
    """The start of a subscription, in place of a shard iterator."""

    shard_id: str
    after: Position | Start

    def encode(self) -> str:
        """Return the token as a text, which ``decode_subscription_token()`` reads."""
        return SUBSCRIPTION + msgspec.json.encode(self).decode()


def decode_subscription_token(iterator: str) -> SubscriptionToken:
    """Return the start of a subscription."""
    text = iterator.removeprefix(SUBSCRIPTION)
    return msgspec.json.decode(text, type=SubscriptionToken)


class _Subscription(NamedTuple):
    """An open event stream, and the token of its next page."""

    stream: EventStream
    next_token: str
    pending: Frame | None = None  # an event that waits for memory


class FanOutSource:
    """The source of one stream that a registered consumer reads.

    ``get_iterator()`` returns a token, and ``get_records()`` subscribes there and
    returns the events one after the other. A subscription that ends is renewed after
    the last returned event. Two calls for one shard are CALL_SECONDS apart.
    """

    def __init__(
        self,
        source: FanOutCalls,
        subscribe: Subscribe,
        consumer: Consumer,
        in_use_seconds: float = IN_USE_SECONDS,
    ) -> None:
        """Create a source.

        It waits for ``in_use_seconds`` if Kinesis does not permit a subscription yet,
        since another one of the shard began a short time ago.
        """
        self._source, self._begin, self._consumer = source, subscribe, consumer
        self._in_use_seconds = in_use_seconds
        self._subscriptions: dict[str, _Subscription] = {}
        # By shard id: when the next call of SubscribeToShard is permitted.
        self._next_call_at: dict[str, float] = {}

    async def describe(self) -> StreamInfo:
        """Return the stream's current description. Raise StreamMissingError."""
        return await self._source.describe()

    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that Kinesis lists, including closed shards."""
        return await self._source.list_shards()

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a block that reserves nothing: subscriptions have connections."""
        return nullcontext()

    def fan_out(self) -> FanOutUse:
        """Return the stream consumer, and why the client polls instead, if it does."""
        return FanOutUse(self._consumer.name, self._consumer.problem)

    def is_pushed(self, iterator: str) -> bool:
        """Return whether ``get_records()`` waits for the iterator's records."""
        return iterator.startswith(SUBSCRIPTION)

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return a token for a subscription, or an iterator if the client polls."""
        self.release(shard_id)
        if self._consumer.arn() is None:
            return await self._source.get_iterator(shard_id, after)
        return SubscriptionToken(shard_id, after).encode()

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next event's records. ``limit`` applies only to polling."""
        if self.is_pushed(iterator):
            return await self._next_event(iterator, limit, reservation)
        if self._consumer.arn() is not None:
            raise ExpiredIteratorError("fan-out is possible again")
        return await self._source.get_records(iterator, limit, reservation)

    def release(self, shard_id: str) -> None:
        """Close the subscription of a shard that is not read any more."""
        subscription = self._subscriptions.pop(shard_id, None)
        if subscription is not None:
            subscription.stream.close()

    async def _next_event(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        token = decode_subscription_token(iterator)
        try:
            page = await self._event(iterator, token, reservation)
        except (InvalidPositionError, TrimmedPositionError):
            return await self._poll(token, limit, reservation)
        except BaseException:
            # An event that waits for memory is kept for the next call.
            kept = self._subscriptions.get(token.shard_id)
            if kept is not None and kept.pending is None:
                self.release(token.shard_id)
            raise
        if after_page(page, was_closed=False) is not NextStep.CONFIRM:
            return page
        page = await self._poll(token, limit, reservation)
        is_open = page.next_iterator is not None and not page.records
        return page._replace(is_unconfirmed=is_open)

    async def _poll(
        self, token: SubscriptionToken, limit: int, reservation: Reservation | None
    ) -> Page:
        """Read a page by polling, which finds out whether the shard has ended.

        If it hasn't, the iterator of the page leads back to a subscription.
        """
        self.release(token.shard_id)
        iterator = await self._source.get_iterator(token.shard_id, token.after)
        page = await self._source.get_records(iterator, limit, reservation)
        if page.next_iterator is None:
            self._next_call_at.pop(token.shard_id, None)
        return page

    async def _event(
        self, iterator: str, token: SubscriptionToken, reservation: Reservation | None
    ) -> Page:
        shard_id = token.shard_id
        while True:
            subscription = self._subscriptions.get(shard_id)
            if subscription is None or subscription.next_token != iterator:
                self.release(shard_id)
                stream = await self._subscribe(token)
                subscription = _Subscription(stream, iterator)
                self._subscriptions[shard_id] = subscription
            page = await self._read(subscription, token, reservation)
            if page is not None:
                return page
            # AWS ends each subscription after five minutes: renew it.
            self.release(shard_id)

    async def _read(
        self,
        subscription: _Subscription,
        token: SubscriptionToken,
        reservation: Reservation | None,
    ) -> Page | None:
        """Return the next event's page, or None at the end of the subscription."""
        frame = subscription.pending or await self._next_frame(subscription, token)
        if frame is None:
            return None
        size = len(frame.payload)
        if reservation is not None and not reservation.covers(size):
            kept = subscription._replace(pending=frame)
            self._subscriptions[token.shard_id] = kept
            await reservation.grow(size)
        with refusal_errors("SubscribeToShard", SourceUnavailableError):
            page = decode_event(frame.payload)
        match after_page(page, was_closed=False):
            case NextStep.READ_ON:
                after = page.next_iterator or ""
            case NextStep.READ_AFTER_LAST:
                after = page.records[-1].sequence_number
            case step:
                self.release(token.shard_id)
                if step is NextStep.END:
                    self._next_call_at.pop(token.shard_id, None)
                return page
        next_token = SubscriptionToken(token.shard_id, Position(after)).encode()
        self._subscriptions[token.shard_id] = _Subscription(
            subscription.stream, next_token
        )
        return page._replace(next_iterator=next_token)

    async def _next_frame(
        self, subscription: _Subscription, token: SubscriptionToken
    ) -> Frame | None:
        while True:
            try:
                frame = await subscription.stream.next()
            except OSError as broken:  # TimeoutError is an OSError, too
                raise SourceUnavailableError(
                    f"the subscription to {self._source.label}, {token.shard_id} "
                    f"broke: {SECRETS.redact(str(broken)) or 'no event arrived'}"
                ) from broken
            if frame is None or frame.name == "SubscribeToShardEvent":
                return frame
            if frame.kind != "event":
                error = await self._source.error_of_subscription(
                    frame.name, fault_message(frame), token.shard_id
                )
                if self._polls_after(error):
                    raise ExpiredIteratorError("fan-out has become impossible")
                raise error
            # Some servers send an ``initial-response``, which has no content.

    def _polls_after(self, error: KinesumerError) -> bool:
        """Return whether the client polls from now on, because of an error."""
        if isinstance(error, InvalidPositionError | KeyUnavailableError):
            return False  # polling would fail, too
        lasts = isinstance(error, FatalError | ConfigurationError)
        return lasts and self._consumer.lost(error)

    async def _subscribe(self, token: SubscriptionToken) -> EventStream:
        """Subscribe, as soon as Kinesis permits it.

        Raise SourceThrottledError if Kinesis refuses it for too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._in_use_seconds
        while True:
            await asyncio.sleep(self._next_call_at.get(token.shard_id, 0) - loop.time())
            arn = self._consumer.arn()
            if arn is None:
                raise ExpiredIteratorError("fan-out is not possible at present")
            try:
                stream = await self._call(arn, token)
            except SourceThrottledError:
                if loop.time() >= deadline:
                    raise
            except (FatalError, ConfigurationError) as error:
                if not self._polls_after(error):
                    raise
            else:
                self._consumer.works()
                return stream

    async def _call(self, arn: str, token: SubscriptionToken) -> EventStream:
        try:
            position = subscription_position(token.after)
            return await self._begin(arn, token.shard_id, position)
        finally:  # count from the answer: AWS counts from when the call arrived
            now = asyncio.get_running_loop().time()
            self._next_call_at[token.shard_id] = now + CALL_SECONDS


async def open_reading_source(
    clients: ClientFactory, stream: Stream, in_use_seconds: float = IN_USE_SECONDS
) -> StreamSource:
    """Return the source from which a client reads a stream.

    With ``fan_out``, find or register the stream consumer. Raise an error if that is
    not possible and the stream has no ``fan_out_fallback``. See ``FanOutSource`` for
    ``in_use_seconds``.
    """
    source = await open_source(clients, stream)
    if stream.fan_out is None:
        return source
    consumer = Consumer(source, stream.fan_out, falls_back=stream.fan_out_fallback)
    clients.at_exit(consumer.close)
    await consumer.open()
    subscribe = partial(source.subscribe, clients.event_streams)
    return FanOutSource(source, subscribe, consumer, in_use_seconds)
