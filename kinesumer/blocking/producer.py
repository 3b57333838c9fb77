"""The producer for code without asyncio. Its event loop runs in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, Self

from anyio import move_on_after

from kinesumer.blocking.portal import LoopThread
from kinesumer.errors import FailedRecord, KinesumerError, PutFailedError
from kinesumer.model.streams import Stream
from kinesumer.model.validation import ForThreads
from kinesumer.producer import client as asynchronous
from kinesumer.producer import pending
from kinesumer.producer.client import ABORT_SECONDS
from kinesumer.producer.pending import PutResult, failed_record, valid_entry
from kinesumer.producer.put_stream import GIVE_UP_SECONDS, PutCounts, PutStream
from kinesumer.producer.record_producer import (
    LINGER_SECONDS,
    MAX_BUFFER_BYTES,
    RECORD_COST_BYTES,
)
from kinesumer.producer.trace_context import AddTraceparent, Traced
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.stop_signals import fail_at_exit
from kinesumer.wire.put_records import Entry

# Maximum size of the records that threads have put and the loop hasn't accepted yet.
# Chosen: threads and the loop rarely wait for each other, and it is little memory.
INBOX_BYTES = 1 << 20
TOO_LATE = KinesumerError("the producer was closed too early; call flush() first")


class Producer(ForThreads):
    """Puts records into one stream: ``with Producer("orders") as producer:``.

    It has the arguments and the errors of ``kinesumer.Producer``. Any thread may call
    its methods. The records of one thread keep their order.
    """

    def __init__(
        self,
        stream: str | Stream,
        *,
        aggregate: bool = False,
        ordered: bool = False,
        region: str | None = None,
        session: object | None = None,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
        linger_seconds: float = LINGER_SECONDS,
        give_up_seconds: float = GIVE_UP_SECONDS,
        traceparent: str | AddTraceparent | None = None,
    ) -> None:
        self._producer = _Producer(
            stream,
            aggregate=aggregate,
            ordered=ordered,
            region=region,
            session=session,
            max_buffer_bytes=max_buffer_bytes,
            linger_seconds=linger_seconds,
            give_up_seconds=give_up_seconds,
            traceparent=traceparent,
        )
        self._loop_thread = LoopThread(self._producer, self._at_exit, "Producer")

    @property
    def stream(self) -> Stream:
        """The stream."""
        return self._producer.stream

    @property
    def counts(self) -> PutCounts:
        """The numbers of records, bytes and requests so far."""
        return self._producer.counts

    def __enter__(self) -> Self:
        self._loop_thread.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._loop_thread.__exit__(*exc_info)

    def close(self) -> None:
        """Put all records, and end the producer. A second call does nothing.

        This is the end of the ``with`` block. Raise PutFailedError for failed records
        whose results no thread waits for.
        """
        self.__exit__(None, None, None)

    def _at_exit(self) -> None:
        """Put what waits when the interpreter ends, and report what isn't put."""
        try:
            self._loop_thread.call(self._producer.end)
        except PutFailedError as failure:
            logger.error("%s: the interpreter ends: %s", self.stream.name, failure)
            fail_at_exit()
        self.close()

    def put(
        self,
        data: bytes,
        *,
        partition_key: str | None = None,
        explicit_hash_key: str | None = None,
    ) -> PutFuture:
        """Accept a record when the buffer has room for it. Return its future result.

        The arguments and errors are those of ``kinesumer.Producer.put()``.
        """
        self._loop_thread.check_open()
        stream = self._producer.put_stream
        data, origin = self._producer.traced(data)
        given = data, partition_key, explicit_hash_key
        entry = valid_entry(*given, stream.info)
        if entry is None:
            entry = self._loop_thread.call(stream.require_taken, *given)
        future = PutFuture(self._producer, self._loop_thread)
        self._producer.pass_on(entry, future, origin, self._loop_thread)
        return future

    def flush(self) -> None:
        """Send what waits, and wait until Kinesis has accepted each earlier record.

        Raise PutFailedError for failed records whose results no thread waits for.
        """
        self._loop_thread.call(self._producer.flush)


class PutFuture:
    """The future result of one ``put()``, which any thread may ask for."""

    __slots__ = ("_loop_thread", "_producer", "accepted")

    def __init__(self, producer: _Producer, loop_thread: LoopThread) -> None:
        self._producer, self._loop_thread = producer, loop_thread
        # Set by the event loop when its producer has accepted the record.
        self.accepted: pending.PutFuture | None = None

    def result(self, timeout_seconds: float | None = None) -> PutResult:
        """Wait until Kinesis has accepted the record, and return the result.

        Raise PutFailedError if the put failed, and TimeoutError if it isn't done in
        time. After TimeoutError, the record may still be put.
        """
        if self.accepted is not None and self.accepted.done():
            return self.accepted.result()
        return self._loop_thread.call(self._wait, timeout_seconds)

    async def _wait(self, timeout_seconds: float | None) -> PutResult:
        async with asyncio.timeout(timeout_seconds):
            if self.accepted is None:
                await self._producer.caught_up()
            assert self.accepted is not None
            return await self.accepted


# A record, its future, and the traceparent of its creation.
Item = tuple[Entry, PutFuture, str]


class _Producer(asynchronous.Producer):
    """The asynchronous producer, with an inbox for the records of threads.

    A call of the event loop for each record would take most of the time.
    """

    _loop: asyncio.AbstractEventLoop
    put_stream: PutStream
    _inbox_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # This lock guards the attributes below.
        self._lock = threading.Condition()
        # Records, and futures that are done when the loop has accepted all before.
        self._inbox: deque[Item | asyncio.Future[None]] = deque()
        self._inbox_bytes = 0
        self._has_task = self._is_closing = False
        self._failed: list[FailedRecord] = []
        self._cause: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        await super().__aenter__()
        self.put_stream = self._opened().stream
        return self

    def traced(self, data: bytes) -> Traced:
        """Return data with the trace context of the calling thread, if wanted."""
        return self._traced(data)

    async def end(self) -> None:
        """Close the producer when the interpreter ends. Raise PutFailedError."""
        await self._close(ABORT_SECONDS)

    async def _close(self, limit_seconds: float | None = None) -> None:
        if self._records is None:
            return
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()
        began = self._loop.time()
        try:
            with move_on_after(limit_seconds) as scope:
                scope.shield = limit_seconds is not None
                await self.caught_up()
        finally:
            if self._inbox_task is not None:
                self._inbox_task.cancel()
            if limit_seconds is not None:
                limit_seconds = max(0.0, began + limit_seconds - self._loop.time())
            try:
                await super()._close(limit_seconds)
            except PutFailedError as failure:
                self._note(failure)
        left = [item for item in self._inbox if isinstance(item, tuple)]
        self._inbox.clear()
        self._failed += [failed_record(entry, TOO_LATE) for entry, _, _ in left]
        self.raise_failures()

    async def flush(self) -> None:
        await self.caught_up()
        self.raise_failures()
        await super().flush()

    def pass_on(
        self, entry: Entry, future: PutFuture, origin: str, loop_thread: LoopThread
    ) -> None:
        """Add a record to the inbox when there is room. Called by threads."""
        with self._lock:
            self.raise_failures()
            while self._inbox_bytes >= INBOX_BYTES and not self._is_closing:
                self._lock.wait()
                self.raise_failures()
            if self._is_closing:
                raise loop_thread.closed()
            self._inbox_bytes += entry.size + RECORD_COST_BYTES
            self._add((entry, future, origin))

    async def caught_up(self) -> None:
        """Wait until the loop has accepted all records that were put before."""
        marker: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._add(marker)
        await marker

    def _add(self, item: Item | asyncio.Future[None]) -> None:
        self._inbox.append(item)
        if not self._has_task:
            self._has_task = True
            self._loop.call_soon_threadsafe(self._start)

    def raise_failures(self) -> None:
        """Raise PutFailedError, once, for failed records that no thread waits for."""
        with self._lock:
            failed, self._failed = self._failed, []
            cause, self._cause = self._cause, None
        if failed:
            raise PutFailedError(failed) from cause

    def _start(self) -> None:
        self._inbox_task = asyncio.ensure_future(self._accept_all())

    async def _accept_all(self) -> None:
        assert self._records is not None
        while True:
            with self._lock:
                if not self._inbox:
                    self._has_task = False
                    return
                item = self._inbox[0]
            if isinstance(item, tuple):
                entry, future, origin = item
                try:
                    future.accepted = await self._records.add(entry, origin)
                except PutFailedError as error:
                    # The next call of a thread raises it. Then this record is tried
                    # again.
                    self._note(error)
                    continue
            elif not item.done():
                item.set_result(None)
            with self._lock:
                self._inbox.popleft()
                if isinstance(item, tuple):
                    self._inbox_bytes -= entry.size + RECORD_COST_BYTES
                    self._lock.notify_all()

    def _note(self, error: PutFailedError) -> None:
        with self._lock:
            self._failed += error.records
            self._cause = self._cause or error.__cause__
            self._lock.notify_all()
