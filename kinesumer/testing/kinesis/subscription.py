"""Model registered consumers, and their subscriptions to shards.

Events are frames of AWS's ``application/vnd.amazon.eventstream``. Source:
https://smithy.io/2.0/aws/amazon-eventstream.html.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import msgspec

from kinesumer.testing.kinesis.limits import TICK, Bucket, Limits
from kinesumer.testing.kinesis.shards import Shard, child_description


class Step(NamedTuple):
    """A frame to send, and whether the subscription ends with it.

    Without a frame, ``wait_seconds`` is the time until the next look.
    """

    frame: bytes = b""
    is_last: bool = False
    wait_seconds: float = 0.0


class SubscribedStream(Protocol):
    """The parts of a stream that a subscription needs."""

    limits: Limits
    status: str
    next_number: int

    def count_of(self, shard: Shard, sequence_number: str) -> int:
        """Return the count in a sequence number."""

    def number(self, index: int, count: int) -> str:
        """Return the sequence number of a count in the shard with this index."""


class Subscription:
    """One subscription to a shard. ``step()`` returns the next frame to send."""

    def __init__(
        self, stream: SubscribedStream, shard: Shard, index: int, now: float
    ) -> None:
        self.began_at = now
        self.ends_at: float = now + stream.limits.subscription_seconds
        self.shard = shard
        # A function to call if the next step may have changed.
        self.wake: Callable[[], None] = lambda: None
        self._stream = stream
        self._index = index
        self._bytes = Bucket(stream.limits.pushed_bytes_per_second)
        self._last_event = -float("inf")
        self._fault: tuple[str, str] | None = None
        shard.listeners.append(self._changed)

    def _changed(self) -> None:
        self.wake()

    def close(self) -> None:
        """Send no more events."""
        self.shard.listeners.remove(self._changed)

    def end_with(self, code: str, message: str) -> None:
        """End the subscription with an exception."""
        self._fault = (code, message)
        self.wake()

    def step(self, now: float) -> Step:
        """Return the next frame, or how long to wait for it."""
        limits, log = self._stream.limits, self.shard.log
        if self._fault is None and self._stream.status == "DELETING":
            self._fault = ("ResourceNotFoundException", "The stream is being deleted.")
        if self._fault is not None:
            return Step(exception_frame(*self._fault), is_last=True)
        left = self.ends_at - now
        if left <= 0:
            return Step(is_last=True)
        start = max(self._index, self.shard.trimmed)
        due = self.shard.place_since(now - limits.delivery_seconds + TICK)
        end, size = self.shard.page(
            start, min(limits.page_records, max(0, due - start)), limits.event_bytes
        )
        if end > start and not self._bytes.holds(0, now):
            return Step(wait_seconds=0.01)
        idle = self._last_event + limits.idle_event_seconds - now
        if end > start or self._is_at_end(start) or idle <= 0:
            self._bytes.spend(size)
            return self._event(start, end, now)
        if start < len(log):  # records that are delivered a moment later
            idle = min(idle, log[start].arrived_at + limits.delivery_seconds - now)
        return Step(wait_seconds=max(0.001, min(idle, left)))

    def _is_at_end(self, index: int) -> bool:
        return self.shard.closed and index == len(self.shard.log)

    def _event(self, start: int, end: int, now: float) -> Step:
        shard = self.shard
        self._last_event, self._index = now, end
        event: dict[str, object] = {
            "Records": shard.log[start:end],
            "MillisBehindLatest": shard.millis_behind(start, end, now),
            "ContinuationSequenceNumber": None,
        }
        is_last = self._is_at_end(end)
        if is_last:
            event["ChildShards"] = [child_description(c) for c in shard.children]
        else:
            event["ContinuationSequenceNumber"] = self._continuation(end)
        return Step(event_frame(msgspec.json.encode(event)), is_last)

    def _continuation(self, index: int) -> str:
        """Return the highest number that is not after the next record's number."""
        log, stream, shard = self.shard.log, self._stream, self.shard
        following = stream.next_number
        if index < len(log):
            following = stream.count_of(shard, log[index].sequence_number)
        return stream.number(shard.index, following - 1)


@dataclass
class Consumer:
    """A registered consumer of a stream."""

    stream_arn: str
    name: str
    created_at: float
    active_at: float
    gone_at: float = math.inf
    tags: dict[str, str] = field(default_factory=dict)
    # By shard id: the last subscription, and the rate of the calls.
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    calls: dict[str, Bucket] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """The consumer's ARN, which ends with the time of its creation."""
        return f"{self.stream_arn}/consumer/{self.name}:{int(self.created_at)}"

    def status(self, now: float) -> str:
        """Return CREATING, ACTIVE or DELETING."""
        if self.gone_at < math.inf:
            return "DELETING"
        return "CREATING" if now < self.active_at else "ACTIVE"

    def describe(self, now: float) -> dict[str, Any]:
        """Return the fields that every description of a consumer has."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now),
            "ConsumerCreationTimestamp": self.created_at,
        }


def _frame(kind: str, name: str, payload: bytes) -> bytes:
    """Return the frame of a JSON message: an event or an exception with a name."""
    headers = {
        ":message-type": kind,
        f":{kind}-type": name,
        ":content-type": "application/json",
    }
    return encode_frame(headers, payload)


def event_frame(payload: bytes) -> bytes:
    """Return the frame of an event with records, which are JSON."""
    return _frame("event", "SubscribeToShardEvent", payload)


def without_iterator(body: bytes) -> bytes:
    """Return a response or an event that names neither a next place nor children."""
    answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    names = ("NextShardIterator", "ContinuationSequenceNumber", "ChildShards")
    return msgspec.json.encode(
        {name: value for name, value in answer.items() if name not in names}
    )


def without_continuation(frame: bytes) -> bytes:
    """Return an event with neither ContinuationSequenceNumber nor ChildShards."""
    (headers_size,) = struct.unpack_from(">I", frame, 4)
    return event_frame(without_iterator(frame[12 + headers_size : -4]))


def exception_frame(code: str, message: str) -> bytes:
    """Return the frame of an exception."""
    return _frame("exception", code, msgspec.json.encode({"message": message}))


def initial_response() -> bytes:
    """Return the frame with which AWS begins an event stream."""
    return _frame("event", "initial-response", b"{}")


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return a frame with text headers."""
    encoded = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", 7, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    sizes = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    head = sizes + struct.pack(">I", crc32(sizes)) + encoded
    checksum = crc32(payload, crc32(head))
    return b"%b%b%b" % (head, payload, struct.pack(">I", checksum))
