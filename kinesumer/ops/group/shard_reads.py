"""Read shards for operators' commands. Limit the calls, and retry throttled ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kinesumer.aws.kinesis import open_source
from kinesumer.core.backoff import Backoff
from kinesumer.errors import (
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.runtime.tasks import gather_or_cancel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import ShardKey, Start
    from kinesumer.ports import StreamSource

K = TypeVar("K")
T = TypeVar("T")

PARALLEL_READS = 16
MAX_ATTEMPTS = 6
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.4, 2.0
# A read isn't retried after this time, since a person waits for the command.
GIVE_UP_SECONDS = 20.0


class OutageCount(NamedTuple):
    """The reads of a stream that failed since its last successful read."""

    shards: int
    at: float  # time of the last failed read, on the monotonic clock
    error: SourceUnavailableError


class PacedReader:
    """Makes the reads of one command, only some at a time and not too many per shard.

    All readers of a shard share five calls a second, so throttling is expected.
    ``interval_seconds`` is the shortest time between two reads of one shard.
    """

    def __init__(self, interval_seconds: float = 0.0) -> None:
        self._interval = interval_seconds
        self._next: dict[ShardKey, float] = {}
        self._limit = asyncio.Semaphore(PARALLEL_READS)
        self._outages: dict[str, OutageCount] = {}
        # The number of throttled reads of each shard.
        self.throttled: Counter[ShardKey] = Counter()

    async def read(
        self, source: StreamSource, key: ShardKey, after: Position | Start, limit: int
    ) -> Page:
        """Return the page after a position.

        Raises ShardMissingError, TrimmedPositionError, InvalidPositionError.
        """

        async def request() -> Page:
            iterator = await source.get_iterator(key.shard_id, after)
            return await source.get_records(iterator, limit)

        return await self.call(key, request)

    async def read_on(
        self, source: StreamSource, key: ShardKey, iterator: str, limit: int
    ) -> Page:
        """Return the next page. Raises ExpiredIteratorError."""
        return await self.call(key, lambda: source.get_records(iterator, limit))

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
                    if attempt == MAX_ATTEMPTS or elapsed > GIVE_UP_SECONDS:
                        self._record_failure(key.stream_arn, error)
                        raise
                else:
                    self._outages.pop(key.stream_arn, None)
                    return page
                backoff = Backoff(PAUSE_SECONDS, MAX_PAUSE_SECONDS)
                await asyncio.sleep(backoff.limit_seconds(attempt))
        raise AssertionError("the last attempt returns or raises")

    def _record_failure(self, arn: str, error: SourceUnavailableError) -> None:
        # Throttling is no outage, since it shows that the stream is available.
        if not isinstance(error, SourceThrottledError):
            shards = self._outages[arn].shards if arn in self._outages else 0
            self._outages[arn] = OutageCount(shards + 1, time.monotonic(), error)

    def _require_no_outage(self, arn: str) -> None:
        """Raise SourceUnavailableError if many reads of a stream failed just now."""
        # Without this check, a command would wait for each of a thousand shards.
        outage = self._outages.get(arn)
        if (
            outage is not None
            and outage.shards >= PARALLEL_READS
            and time.monotonic() - outage.at < GIVE_UP_SECONDS
        ):
            raise SourceUnavailableError(
                f"not read, because {outage.shards} shards in a row gave no answer: "
                f"{outage.error}"
            )

    async def _wait_turn(self, key: ShardKey) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next.get(key, now))
        self._next[key] = turn + self._interval
        await asyncio.sleep(turn - now)


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
