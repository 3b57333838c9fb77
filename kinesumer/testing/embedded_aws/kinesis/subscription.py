"""Send a subscription's events as frames of an event stream.

The format is AWS's ``application/vnd.amazon.eventstream``. Source:
https://smithy.io/2.0/aws/amazon-eventstream.html.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from kinesumer.testing.embedded_aws.kinesis.limits import Bucket
from kinesumer.testing.embedded_aws.kinesis.records import (
    child_description,
    without_iterator,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.testing.embedded_aws.kinesis.shards import Shard, Stream

_EVENT = {
    ":message-type": "event",
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/json",
}


class Step(NamedTuple):
    """A frame to send, and whether the subscription ends with it.

    Without a frame, ``wait_seconds`` is the time until the next look.
    """

    frame: bytes = b""
    is_last: bool = False
    wait_seconds: float = 0.0


class Subscription:
    """One subscription to a shard. The server's event loop sends its events."""

    def __init__(self, stream: Stream, shard: Shard, after: int, now: float) -> None:
        self.began_at = now
        self.shard = shard
        self._stream = stream
        self._after = after
        self._bytes = Bucket(stream.limits.pushed_bytes_per_second)
        self._last_event = -float("inf")
        self._fault: tuple[str, str] | None = None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        shard.listeners.append(self.wake)

    def close(self) -> None:
        """Send no more events."""
        self.shard.listeners.remove(self.wake)

    def wake(self) -> None:
        """Look for records now. Any thread may call this."""
        if not self._changed.is_set():
            self._loop.call_soon_threadsafe(self._changed.set)

    def end_with(self, code: str, message: str) -> None:
        """End the subscription with an exception."""
        self._fault = (code, message)
        self.wake()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, but at most for some seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def step(self, now: float) -> Step:
        """Return the next frame, or how long to wait for it."""
        limits, log = self._stream.limits, self.shard.log
        if self._fault is None and self._stream.status == "DELETING":
            self._fault = ("ResourceNotFoundException", "The stream is being deleted.")
        if self._fault is not None:
            return Step(exception_frame(*self._fault), is_last=True)
        left = self.began_at + limits.subscription_seconds - now
        if left <= 0:
            return Step(is_last=True)
        log.trim(self._stream.horizon(now))
        start = log.after(self._after)
        deliverable = log.since(now - limits.delivery_seconds + 0.0005)
        end = log.page_end(start, limits.page_records, limits.event_bytes)
        end = max(start, min(end, deliverable))
        if end > start:
            if not self._bytes.holds(0, now):
                return Step(wait_seconds=0.01)
            self._bytes.spend(log.size(start, end))
            return self._event(start, end, now)
        if self._is_at_end(start):
            return self._event(start, end, now)
        idle = self._last_event + limits.idle_event_seconds - now
        if idle <= 0:
            return self._event(start, end, now)
        if start < len(log):  # records that are delivered a moment later
            idle = min(idle, log.times[start] + limits.delivery_seconds - now)
        return Step(wait_seconds=max(0.001, min(idle, left)))

    def _is_at_end(self, index: int) -> bool:
        return self.shard.closed_at is not None and index == len(self.shard.log)

    def _event(self, start: int, end: int, now: float) -> Step:
        log, stream = self.shard.log, self._stream
        self._last_event = now
        if end > start:
            self._after = log.counters[end - 1]
        at_tip = end == len(log)
        behind = 0 if at_tip else round((now - log.times[max(end - 1, start)]) * 1000)
        tail: dict[str, object] = {"MillisBehindLatest": max(behind, 0)}
        is_last = self._is_at_end(end)
        if is_last:
            tail["ContinuationSequenceNumber"] = None
            children = [child_description(child) for child in self.shard.children]
            tail["ChildShards"] = children
        else:
            counter = max(self._after, self.shard.first_counter)
            number = stream.sequence(self.shard, counter)
            tail["ContinuationSequenceNumber"] = number
        encoded = msgspec.json.encode(tail)[1:]
        body = b'{"Records":[%b],%b' % (log.join(start, end), encoded)
        return Step(encode_frame(_EVENT, body), is_last)


def without_continuation(frame: bytes) -> bytes:
    """Return an event with neither ContinuationSequenceNumber nor ChildShards."""
    (headers_size,) = struct.unpack_from(">I", frame, 4)
    return encode_frame(_EVENT, without_iterator(frame[12 + headers_size : -4]))


def exception_frame(code: str, message: str) -> bytes:
    """Return the frame of an exception."""
    headers = {
        ":message-type": "exception",
        ":exception-type": code,
        ":content-type": "application/json",
    }
    return encode_frame(headers, msgspec.json.encode({"message": message}))


def initial_response() -> bytes:
    """Return the frame with which AWS begins an event stream."""
    headers = {
        ":message-type": "event",
        ":event-type": "initial-response",
        ":content-type": "application/json",
    }
    return encode_frame(headers, b"{}")


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
