"""Provide a stream for fan-out whose events and answers a test scripts."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import msgspec

from kinesumer.aws.fan_out import CALL_SECONDS, IN_USE_SECONDS, FanOutSource
from kinesumer.aws.stream_consumers import Consumer
from kinesumer.errors import FatalError, KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ports import Polled, Reservation
from kinesumer.wire.event_stream import PRELUDE_BYTES, Frame

STREAM_ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
POLLED = "polled"  # the iterator of a client that polls


def consumer_arn(name: str = "billing", stream: str = STREAM_ARN) -> str:
    return f"{stream}/consumer/{name}:1700000000"


def event(
    *texts: str, continuation: str | None = "1", children: list[Any] | None = None
) -> Frame:
    """Return an event with these records."""
    records = [
        {
            "SequenceNumber": str(100 + number),
            "Data": b64encode(text.encode()).decode(),
            "PartitionKey": "key",
            "ApproximateArrivalTimestamp": 1.0,
        }
        for number, text in enumerate(texts)
    ]
    fields: dict[str, object] = {
        "Records": records,
        "ContinuationSequenceNumber": continuation,
        "MillisBehindLatest": 0,
    }
    if children is not None:
        fields["ChildShards"] = children
    return Frame("event", "SubscribeToShardEvent", msgspec.json.encode(fields))


def framed(headers: bytes, payload: bytes = b"{}") -> bytes:
    """Return a frame with right checksums, whatever its headers are."""
    size = PRELUDE_BYTES + len(headers) + len(payload) + 4
    sizes = struct.pack(">II", size, len(headers))
    body = sizes + struct.pack(">I", crc32(sizes)) + headers + payload
    return body + struct.pack(">I", crc32(body))


class ScriptedStream:
    """The event stream of one subscription. Implements ``EventStream``."""

    def __init__(
        self, consumer: str, shard_id: str, position: Mapping[str, object]
    ) -> None:
        self.consumer, self.shard_id, self.position = consumer, shard_id, dict(position)
        self.is_closed = False
        self._coming: asyncio.Queue[Frame | OSError | None] = asyncio.Queue()

    def send(self, *frames: Frame | OSError | None) -> None:
        """Send frames. None ends the stream, and an error breaks it."""
        for frame in frames:
            self._coming.put_nowait(frame)

    async def begin(self) -> None:
        """Do nothing: the response has begun."""

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end. Raise the scripted error."""
        frame = await self._coming.get()
        if isinstance(frame, OSError):
            raise frame
        return frame

    def close(self) -> None:
        self.is_closed = True


class ScriptedCalls(Polled):
    """A stream's source with the calls of fan-out. Implements ``FanOutCalls``."""

    label = "stream orders"

    def __init__(self) -> None:
        self.streams: list[ScriptedStream] = []
        # For each call of subscribe(): its time, and the error of the next ones.
        self.subscribed_at: list[float] = []
        self.refusals: deque[Exception] = deque()
        # What exceptions of event streams mean, by their code.
        self.meanings: dict[str, KinesumerError] = {}
        # The calls about consumers, and what the next ones answer or raise.
        self.consumer_calls: list[str] = []
        self.answers: deque[Mapping[str, object] | Exception | None] = deque()
        self.consumer_seconds = 0.0  # the duration of a call
        # What the next calls of get_iterator() raise.
        self.polled_errors: deque[Exception] = deque()
        self.status = "ACTIVE"

    async def arn(self) -> str:
        return STREAM_ARN

    async def require_direct_calls(self, consumer_arn: str) -> None:
        """Do nothing: all settings permit subscriptions."""

    async def call_of_consumer(
        self, operation: str, arguments: Mapping[str, object]
    ) -> Any:
        """Return the next scripted answer, else a description with ``status``."""
        self.consumer_calls.append(operation)
        await asyncio.sleep(self.consumer_seconds)
        if self.answers:
            answer = self.answers.popleft()
            if isinstance(answer, Exception):
                raise answer
            return answer
        return {"ConsumerDescription": described(self.status)}

    async def error_of_subscription(
        self, code: str, text: str, shard_id: str
    ) -> KinesumerError:
        return self.meanings.get(code) or FatalError(f"{code}: {text}")

    async def subscribe(
        self, arn: str, shard_id: str, position: Mapping[str, object]
    ) -> ScriptedStream:
        self.subscribed_at.append(asyncio.get_running_loop().time())
        if self.refusals:
            raise self.refusals.popleft()
        self.streams.append(ScriptedStream(arn, shard_id, position))
        return self.streams[-1]

    async def describe(self) -> StreamInfo:
        raise NotImplementedError

    async def list_shards(self) -> list[Shard]:
        raise NotImplementedError

    def connection(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        if self.polled_errors:
            raise self.polled_errors.popleft()
        return POLLED

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        return Page([], POLLED, 0)


def described(status: str = "ACTIVE", name: str = "billing") -> dict[str, object]:
    """Return a consumer as Kinesis describes it."""
    return {
        "ConsumerName": name,
        "ConsumerARN": consumer_arn(name),
        "ConsumerStatus": status,
        "ConsumerCreationTimestamp": datetime(2026, 1, 1, tzinfo=UTC),
    }


SHARD = "shardId-000000000000"


class Subscriber:
    """Reads a shard by subscriptions that the test scripts."""

    def __init__(
        self, *, falls_back: bool = False, in_use_seconds: float = IN_USE_SECONDS
    ) -> None:
        self.calls = calls = ScriptedCalls()
        self.consumer = Consumer(calls, "billing", falls_back=falls_back)
        self.source = FanOutSource(
            calls, calls.subscribe, self.consumer, in_use_seconds
        )

    async def begin(self, after: Position | Start = Start.TRIM_HORIZON) -> str:
        """Open the consumer, and return the first iterator."""
        await self.consumer.open()
        return await self.source.get_iterator(SHARD, after)

    async def read(self, iterator: str | None, *frames: Frame | OSError | None) -> Page:
        """Return the next page of the open subscription, which sends these frames."""
        assert iterator is not None
        reading = asyncio.ensure_future(self.source.get_records(iterator, 10_000))
        await asyncio.sleep(CALL_SECONDS + 0.01)
        self.last.send(*frames)
        return await reading

    @property
    def last(self) -> ScriptedStream:
        return self.calls.streams[-1]
