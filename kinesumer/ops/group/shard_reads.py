"""Read shards for operators' commands. Limit the calls, and retry throttled ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
    TransientError,
)
from kinesumer.model.records import Page
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group.connect import NO_ROLES, RETRY_SECONDS, Roles
from kinesumer.runtime.retries import Retries
from kinesumer.runtime.tasks import gather_or_cancel

K = TypeVar("K")
T = TypeVar("T")

PARALLEL_READS = 16
RETRIES = Retries(max_attempts=6, max_seconds=RETRY_SECONDS)
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

        def count(error: TransientError) -> None:
            self.throttled[key] += isinstance(error, SourceThrottledError)

        await self._wait_turn(key)
        async with self._limit:
            self._require_no_outage(key.stream_arn)
            try:
                page = await RETRIES.call(request, on_failure=count)
            except SourceThrottledError:
                raise  # throttling shows that the stream is available
            except SourceUnavailableError as error:
                self._outages[key.stream_arn] = error, time.monotonic()
                raise
            self._outages.pop(key.stream_arn, None)
            return page

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
