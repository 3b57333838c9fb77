"""Imitate Kinesis with subscriptions to shards that have endless prepared records.

    python -m benchmarks.push_server RECORDS BYTES

Each event has RECORDS records of BYTES each.
Prints its URL, and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import Requests, listening
from benchmarks.pages import Layout, numbered
from kinesumer.testing.kinesis.subscription import encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENT = {
    ":message-type": "event",
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/json",
}
EVENTS_KEPT = 100
WAITING_BYTES = 1024 * 1024  # written to a connection, but not sent
PIECES_AT_ONCE = 100  # written before the event loop handles other events


class Pushes(Canned):
    """Answers the calls of a client with a stream consumer."""

    def __init__(self, records: int, size: int) -> None:
        super().__init__(Layout("", records, size).body())
        self._frames: dict[int, bytes] = {}

    def answer(self, operation: str, given: dict[str, Any]) -> bytes:
        """Return the body of the response to a call."""
        if operation == "GetRecords":
            return self._page(JSON, int(given["ShardIterator"]))
        return json.dumps(getattr(self, f"_{operation}")(given)).encode()

    def frame(self, number: int) -> bytes:
        """Return the frame of a shard's n-th event."""
        if number not in self._frames:
            if len(self._frames) >= EVENTS_KEPT:
                del self._frames[min(self._frames)]
            page = numbered(self._body, number)
            records = page[: page.rindex(b"]") + 1]
            continuation = b"4%03d%052d" % (number, 0)
            tail = b',"MillisBehindLatest":60000,"ContinuationSequenceNumber":"%b"}'
            self._frames[number] = encode_frame(EVENT, records + tail % continuation)
        return self._frames[number]

    def _DescribeStreamConsumer(self, given: dict[str, str]) -> object:
        arn = f"{given['StreamARN']}/consumer/{given['ConsumerName']}:1700000000"
        described = {"ConsumerName": given["ConsumerName"], "ConsumerARN": arn}
        described |= {"ConsumerStatus": "ACTIVE", "StreamARN": given["StreamARN"]}
        return {
            "ConsumerDescription": {**described, "ConsumerCreationTimestamp": 1.7e9}
        }


class Pushing(Requests):
    """One connection."""

    def __init__(self, pushes: Pushes) -> None:
        super().__init__()
        self._pushes = pushes
        self._writable = True
        # What to send as soon as the connection takes it: a generator for each request.
        self._sending: deque[Iterator[bytes]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(WAITING_BYTES)

    def pause_writing(self) -> None:
        """Send nothing for now."""
        self._writable = False

    def resume_writing(self) -> None:
        """Send again."""
        self._writable = True
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Send nothing more."""
        self._writable = False
        self._sending.clear()

    def _send(self) -> None:
        idle = pieces = 0
        transport = self.transport
        while self._writable and idle < len(self._sending):
            if transport.is_closing():
                return
            if pieces == PIECES_AT_ONCE:
                # A broken TLS connection takes every write until the loop ends it.
                asyncio.get_running_loop().call_soon(self._send)
                return
            piece = next(self._sending[0])
            self._sending.rotate(-1)
            idle = 0 if piece else idle + 1
            if piece:
                transport.write(piece)
                pieces += 1

    def handle(self, operation: str, head: bytes, body: bytes) -> None:
        """Answer a call, or begin to send events."""
        if operation == "SubscribeToShard":
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream"
                b"\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            self._sending.append(self._chunks())
            self._send()
            return
        answer = self._pushes.answer(operation, json.loads(body or b"{}"))
        self.send(JSON, answer)

    def _chunks(self) -> Iterator[bytes]:
        number = 0
        while True:
            frame = self._pushes.frame(number)
            yield b"%x\r\n" % len(frame) + frame + b"\r\n"
            number += 1


async def main() -> None:
    """Serve until standard input ends."""
    # A client ends in the middle of events. asyncio would log each write after that.
    logging.getLogger("asyncio").disabled = True
    pushes = Pushes(*map(int, sys.argv[1:]))
    async with listening(lambda: Pushing(pushes)):
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
