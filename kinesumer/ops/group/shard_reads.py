"""Read shards for operators' commands. Limit the calls, and retry throttled ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from kinesumer.aws.kinesis import open_source
from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.errors import (
    ExpiredIteratorError,
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Page, Source
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.ops.group.connect import NO_ROLES, RETRY_SECONDS, Roles
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.wire.aggregation import open_in_steps

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.records import Record
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StreamSource

K = TypeVar("K")
T = TypeVar("T")

PARALLEL_READS = 16
MAX_ATTEMPTS = 6
# Consumers share a shard's five reads and 2 MB per second. At this interval and with
# pages of SHARED_PAGE_BYTES, a command takes two reads and half of the bytes.
READ_INTERVAL_SECONDS = 0.5
MAX_READS = 16  # of a shard for one answer: they take eight seconds


class PacedReader:
    """Makes the reads of one command, only some at a time and not too many per shard.

    All readers of a shard share five calls a second, so throttling is expected.
    ``interval_seconds`` is the shortest time between two reads of one shard.
    """

    def __init__(self, interval_seconds: float = 0.0) -> None:
        self._interval = interval_seconds
        self._next: dict[ShardKey, float] = {}
        self._limit = asyncio.Semaphore(PARALLEL_READS)
        # By stream, until a read is answered: the last one without an answer, its time.
        self._outages: dict[str, tuple[SourceUnavailableError, float]] = {}
        # The number of throttled reads of each shard.
        self.throttled: Counter[ShardKey] = Counter()

    async def call(self, key: ShardKey, request: Callable[[], Awaitable[Page]]) -> Page:
        """Return the result of a read of a shard, at the shard's next turn.

        Throttled and failed requests are made again. Raises the request's errors.
        """
        await self._wait_turn(key)
        async with self._limit:
            self._require_no_outage(key.stream_arn)
            began = time.monotonic()
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    page = await request()
                except (SourceThrottledError, SourceUnavailableError) as error:
                    self.throttled[key] += isinstance(error, SourceThrottledError)
                    elapsed = time.monotonic() - began
                    if attempt == MAX_ATTEMPTS or elapsed > RETRY_SECONDS:
                        # Throttling shows that the stream is available.
                        if not isinstance(error, SourceThrottledError):
                            self._outages[key.stream_arn] = error, time.monotonic()
                        raise
                else:
                    self._outages.pop(key.stream_arn, None)
                    return page
                await asyncio.sleep(CALL_BACKOFF.limit_seconds(attempt))
        raise AssertionError("the last attempt returns or raises")

    def _require_no_outage(self, arn: str) -> None:
        # Without this check, a command would wait for each of a thousand shards.
        error, at = self._outages.get(arn, (None, 0.0))
        if error is not None and time.monotonic() - at < RETRY_SECONDS:
            raise SourceUnavailableError(
                f"not read, because another shard gave no answer: {error}"
            )

    async def _wait_turn(self, key: ShardKey) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next.get(key, now))
        self._next[key] = turn + self._interval
        await asyncio.sleep(turn - now)


class ShardPages:
    """The pages of one shard, from a place on.

    ``now`` is Kinesis's time. A ``reader`` limits the reads and repeats failed ones.
    """

    def __init__(
        self,
        source: StreamSource,
        key: ShardKey,
        after: Position | Start,
        now: float,
        reader: PacedReader | None = None,
        hash_keys: tuple[int, int] = (0, HASH_KEYS - 1),
    ) -> None:
        self._source, self._key, self._reader = source, key, reader
        self._page_source = Source(Fence(key, 0), *hash_keys)
        self._position = after
        self._began_at = now
        self._iterator: str | None = None

    async def next(self, limit: int) -> Page:
        """Return the next page. Raises the source's errors."""
        if self._reader is None:
            return await self._next(limit)
        return await self._reader.call(self._key, lambda: self._next(limit))

    async def _next(self, limit: int) -> Page:
        if self._iterator is None:
            self._iterator = await self._source.get_iterator(
                self._key.shard_id, self._position
            )
            if self._position == Start.LATEST:
                # Another iterator at LATEST would skip what arrived since this one.
                self._position = Start(type="AT_TIMESTAMP", timestamp=self._began_at)
        try:
            page = await self._source.get_records(self._iterator, limit)
        except ExpiredIteratorError:
            self._iterator = None
            # This empty page makes the caller read again: it is neither the end of the
            # shard nor its tip.
            return Page([], "", 1)
        self._iterator = page.next_iterator
        if page.records:
            self._position = Position(page.records[-1].sequence_number)
        return page

    async def opened(self, records: Sequence[Record]) -> AsyncIterator[list[Record]]:
        """Yield the user records of a page's records, with aggregates opened."""
        for step in open_in_steps(records, self._page_source):
            await asyncio.sleep(0)  # opening takes long: let other tasks run
            if step.opened.records:
                yield step.opened.records

    def restart(self) -> None:
        """Continue with the oldest record that the shard still has."""
        self._position, self._iterator = Start.TRIM_HORIZON, None


async def for_each_stream(
    clients: ClientFactory,
    arns: Iterable[str],
    work: Callable[[str, KinesisSource], Awaitable[None]],
    roles: Roles = NO_ROLES,
) -> dict[str, KinesumerError]:
    """Run ``work`` for all streams at once; return the errors by ARN."""

    async def run(arn: str) -> KinesumerError | None:
        try:
            await work(arn, await open_source(clients, roles.stream(arn)))
        except KinesumerError as error:
            return error
        return None

    arns = list(arns)
    errors = await asyncio.gather(*(run(arn) for arn in arns))
    return {arn: error for arn, error in zip(arns, errors, strict=True) if error}


async def gather_by_key(calls: Mapping[K, Coroutine[Any, Any, T]]) -> dict[K, T]:
    """Return the result of each call by its key. The first error cancels the others."""
    results = await gather_or_cancel(calls.values())
    return dict(zip(calls, results, strict=True))
