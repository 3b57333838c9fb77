"""Subscriptions over a simulated network, which the real FanOutSource reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, cast

from kinesumer.aws.fan_out import FanOutSource
from kinesumer.aws.http.event_stream import FrameQueue
from kinesumer.aws.kinesis_errors import SUBSCRIBE, ConsumerStateError
from kinesumer.aws.polling import timestamp_errors
from kinesumer.aws.stream_consumers import Consumer
from kinesumer.errors import (
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.streams import Stream
from kinesumer.ports import StreamSource
from kinesumer.testing.kinesis.requests import AwsError
from kinesumer.testing.kinesis.subscription import Subscription, without_continuation
from kinesumer.testing.simulation.machine import Transfer
from kinesumer.testing.simulation.network import LinkedSource
from kinesumer.wire.event_stream import Frame

# The client's computer receives so many bytes that the client has not read.
SOCKET_BYTES = 256 * 1024
# The network carries a frame in pieces of this size.
PIECE_BYTES = 64 * 1024
# The time after which lost bytes are sent again.
RESEND_SECONDS = 0.5
INTERNAL = "InternalFailureException"
EVENT = b"SubscribeToShardEvent"  # a part of the headers of each event with records


class _Piece(NamedTuple):
    """A part of a frame, and whether the frame ends with it."""

    data: bytes
    is_last: bool = True


class Subscriptions:
    """The event streams of one process, and the faults of its subscriptions."""

    def __init__(self) -> None:
        self.open: list[LinkedEventStream] = []
        self.refused_until: float = 0.0  # until then, SubscribeToShard is throttled

    @property
    def coming_bytes(self) -> int:
        """The bytes that are in transit."""
        return sum(stream.coming_bytes for stream in self.open)

    @property
    def most_waiting(self) -> int:
        """The greatest number of frames of a stream that the client holds unread."""
        return max((stream.waiting for stream in self.open), default=0)

    def end_faults(self) -> None:
        """End all faults of the subscriptions."""
        self.refused_until = 0.0
        for stream in self.open:
            stream.end_faults()


class LinkedEventStream:
    """The ``aws.fan_out.EventStream`` of a subscription over a client's link."""

    def __init__(self, source: LinkedFanOutSource, subscription: Subscription) -> None:
        self.coming_bytes: int = 0
        # Complete frames that the client has received but not taken.
        self.waiting: int = 0
        self._stalled_until = 0.0
        self._next_fault = ""
        self._source, self._subscription = source, subscription
        self._loop, self._home = source.machine.loop, copy_context()
        self._queue = FrameQueue(self._pause, self._resume)
        # What the client's computer has received, and then perhaps the end's error.
        self._socket: deque[_Piece | OSError | None] = deque()
        self._is_paused = self._is_over = False
        self._is_complete = False  # whether the server sends no more frames
        self._plan = 0  # the number of the latest timer; earlier ones do nothing
        self._transfer: Transfer | None = None
        subscription.wake = self._wake
        source.subscriptions.open.append(self)
        self._wake()

    # --- the client's side ---

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end. Raises OSError."""
        frame = await self._queue.next()
        self.waiting -= frame is not None
        return frame

    def close(self) -> None:
        """Stop receiving."""
        if not self._is_over:
            self._is_over = True
            self._source.subscriptions.open.remove(self)
            self._subscription.close()
            if self._transfer is not None and self._source.line is not None:
                self._source.line.drop(self._transfer)

    def _pause(self) -> None:
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._readable, context=self._home)

    def _readable(self) -> None:
        while self._socket and not self._is_paused:
            piece = self._socket.popleft()
            if not isinstance(piece, _Piece):
                self._queue.end(piece)
                return
            try:
                self._queue.feed(piece.data)
                self.waiting += piece.is_last
            except SourceUnavailableError as error:  # a corrupt frame
                self._queue.end(error)
                self._socket.clear()
                return
        self._wake()

    # --- faults ---

    def fail(self, how: str) -> None:
        """Break the next frame: "cut" ends it in the middle, "corrupt" changes it."""
        self._next_fault = how
        self._wake()

    def end_early(self) -> None:
        """End the subscription as if its time were over."""
        self._subscription.ends_at = 0.0
        self._wake()

    def throw(self) -> None:
        """End the subscription with an exception."""
        self._subscription.end_with(INTERNAL, "The end.")

    def stall(self, seconds: float) -> None:
        """Send nothing for a time."""
        self._stalled_until = self._loop.real + seconds

    def end_faults(self) -> None:
        """End the faults of this stream."""
        self._next_fault, self._stalled_until = "", 0.0
        self._wake()

    # --- the server's side ---

    def _wake(self) -> None:
        self._look_at(self._loop.real)

    def _look_at(self, when: float) -> None:
        self._plan += 1
        self._loop.at_real(when, self._look, self._plan)

    def _look(self, plan: int) -> None:
        """Send the next frame, if there is one and the client takes it."""
        if plan != self._plan or self._is_over or self._is_complete:
            return
        if not self._source.machine.alive:
            self.close()
            return
        if self.coming_bytes or self._unread_bytes() > SOCKET_BYTES:
            return  # continue when the frame has arrived, or the client has read
        if self._stalled_until > self._loop.real:
            self._look_at(self._stalled_until)
            return
        step = self._subscription.step(self._source.kinesis.clock.wall())
        if step.frame:
            self._send(step.frame, is_last=step.is_last)
        elif step.is_last:
            self._is_complete = True
            self._put(None)
        else:
            self._look_at(self._loop.real + step.wait_seconds)

    def _unread_bytes(self) -> int:
        return sum(len(p.data) for p in self._socket if isinstance(p, _Piece))

    def _send(self, data: bytes, *, is_last: bool) -> None:
        """Send a frame over the link, which has an arrival time of its own."""
        network, draw = self._source.network, self._source.random.random
        if network.no_iterator and draw() < network.no_iterator and EVENT in data:
            data = without_continuation(data)
        fault, self._next_fault = self._next_fault, ""
        end: list[OSError | None] = [None] if is_last else []
        if fault == "cut":
            data, end = data[: len(data) // 2], [ConnectionResetError("reset")]
        elif fault == "corrupt":
            middle = len(data) // 2
            changed = bytes([data[middle] ^ 1])
            data = data[:middle] + changed + data[middle + 1 :]
        self._is_complete = bool(end)
        self._carry(data, end)

    def _carry(self, data: bytes, end: list[OSError | None]) -> None:
        """Carry the next piece over the link."""
        self.coming_bytes = len(data)
        loop, line = self._loop, self._source.line
        arrive = partial(self._arrive, data, end)
        if line is not None and line.bytes_per_second:
            self._transfer = line.carry(min(len(data), PIECE_BYTES), arrive)
        else:
            delay = self._source.network.latency * (0.2 + self._source.random.random())
            loop.at_real(loop.real + delay, arrive)

    def _arrive(self, data: bytes, end: list[OSError | None]) -> None:
        if self._is_over or not self._source.machine.alive:
            return
        network, draw = self._source.network, self._source.random.random
        if network.is_disturbed:
            network.last_disturbed_at = self._loop.real
        if network.bad and draw() < network.lost + network.unanswered:
            later = self._loop.real + RESEND_SECONDS * (1 + draw())
            self._loop.at_real(later, self._arrive, data, end)
            return
        rest = data[PIECE_BYTES:]
        if rest:
            self._put(_Piece(data[:PIECE_BYTES], is_last=False))
            self._carry(rest, end)
            return
        self.coming_bytes = 0
        self._put(_Piece(data), *end)
        self._wake()

    def _put(self, *received: _Piece | OSError | None) -> None:
        self._socket += received
        self._loop.call_soon(self._readable, context=self._home)


@dataclass(eq=False)
class LinkedFanOutSource(LinkedSource):
    """A stream's source over a link, with the calls that fan-out needs."""

    subscriptions: Subscriptions = field(default_factory=Subscriptions)

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        return f"stream {self.name}"

    async def arn(self) -> str:
        """Return the stream's ARN."""
        return (await self.describe()).arn

    async def require_direct_calls(self, consumer_arn: str) -> None:
        """Do nothing: a process has no settings that prevent subscriptions."""

    async def call_of_consumer(
        self, operation: str, arguments: Mapping[str, object]
    ) -> dict[str, Any] | None:
        """Return the response to a call about the stream's consumers.

        Return None if the consumer does not exist, or already exists.
        """
        try:
            answer = await self.call(partial(self.ask, operation, arguments))
        except ConsumerStateError:
            return None
        one = [answer[n] for n in ("Consumer", "ConsumerDescription") if n in answer]
        for consumer in [*one, *answer.get("Consumers", ())]:
            # As a datetime, as AWS's client has it.
            created = datetime.fromtimestamp(consumer["ConsumerCreationTimestamp"], UTC)
            consumer["ConsumerCreationTimestamp"] = created
        return cast("dict[str, Any]", answer)

    async def subscribe(
        self, arn: str, shard_id: str, position: Mapping[str, object]
    ) -> LinkedEventStream:
        """Subscribe a consumer to a shard."""
        begin = partial(self._subscribe_now, arn, shard_id, position)
        return LinkedEventStream(self, await self.call(begin))

    def _subscribe_now(
        self, arn: str, shard_id: str, position: Mapping[str, object]
    ) -> Subscription:
        """Begin a subscription, which replaces the consumer's former one."""
        if self.machine.loop.real < self.subscriptions.refused_until:
            self.network.last_disturbed_at = self.machine.loop.real
            raise SourceThrottledError("the subscription is refused")
        self.kinesis.require_key(self.name)
        arguments = {
            "ConsumerARN": arn,
            "ShardId": shard_id,
            "StartingPosition": position,
        }
        with timestamp_errors(position):
            begun: Subscription = self.ask(SUBSCRIBE, arguments, skew=self.skew())
        return begun

    async def error_of_subscription(
        self, code: str, text: str, shard_id: str
    ) -> KinesumerError:
        """Return the error that an exception in an event stream means."""
        await self.describe()
        return self.error_now(AwsError(code, text), SUBSCRIBE, shard_id)


async def open_fan_out(source: LinkedFanOutSource, stream: Stream) -> StreamSource:
    """Return the source from which a process reads a stream by subscriptions."""
    assert stream.fan_out is not None
    consumer = Consumer(source, stream.fan_out, falls_back=stream.fan_out_fallback)
    await consumer.open()
    return FanOutSource(source, source.subscribe, consumer)
