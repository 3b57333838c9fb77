"""How operators' commands ask Kinesis: a few calls at once, and patient with limits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.aws.kinesis import open_source
from kinesumer.errors import (
    ExpiredIteratorError,
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import ShardKey, Start
    from kinesumer.ports import StreamSource

    T = TypeVar("T")

PARALLEL_READS = 16
MAX_ATTEMPTS = 6
PAUSE_SECONDS = 0.4
GIVE_UP_SECONDS = 20.0
"""What was asked for so long isn't asked again: somebody waits for the command."""


class ServiceClock:
    """Kinesis's own time, carried on by this machine's clock."""

    def __init__(self, now: float) -> None:
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        """Return seconds since 1970."""
        return time.monotonic() + self._ahead


class OutageCount(NamedTuple):
    """A stream's shards that were given up one after the other."""

    shards: int
    at: float
    """When the last one was, on a clock that never goes back."""
    error: SourceUnavailableError


class PacedReader:
    """What one command asks of all streams and shards.

    A shard's readers have the same five calls a second: throttling isn't a fault.
    ``min_read_interval_seconds`` is the shortest time between two reads of one shard.
    """

    def __init__(self, min_read_interval_seconds: float = 0.0) -> None:
        self._pace = min_read_interval_seconds
        self._next: dict[ShardKey, float] = {}
        self._limit = asyncio.Semaphore(PARALLEL_READS)
        self._silent: dict[str, OutageCount] = {}
        self.throttled: Counter[ShardKey] = Counter()
        """How many of a shard's reads were refused as too many."""

    async def read(
        self, source: StreamSource, key: ShardKey, after: Position | Start, most: int
    ) -> Page:
        """Return the page after a place of a shard.

        Raises ShardMissingError, TrimmedPositionError, InvalidPositionError.
        """

        async def ask() -> Page:
            iterator = await source.get_iterator(key.shard_id, after)
            return await source.get_records(iterator, most)

        return await self._patiently(key, ask)

    async def read_on(
        self, source: StreamSource, key: ShardKey, iterator: str, most: int
    ) -> Page:
        """Return the next page. Raises ExpiredIteratorError."""
        return await self._patiently(key, lambda: source.get_records(iterator, most))

    async def _patiently(
        self, key: ShardKey, ask: Callable[[], Awaitable[Page]]
    ) -> Page:
        await self._turn(key)
        async with self._limit:
            self._refuse_silent(key.stream_arn)
            began = time.monotonic()
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    page = await ask()
                except ExpiredIteratorError:
                    raise
                except (SourceThrottledError, SourceUnavailableError) as error:
                    self.throttled[key] += isinstance(error, SourceThrottledError)
                    if (
                        attempt == MAX_ATTEMPTS
                        or time.monotonic() - began > GIVE_UP_SECONDS
                    ):
                        self._given_up(key.stream_arn, error)
                        raise
                else:
                    self._silent.pop(key.stream_arn, None)
                    return page
                await asyncio.sleep(PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    def _given_up(self, arn: str, error: SourceUnavailableError) -> None:
        """Note a shard that didn't answer; what throttles does answer."""
        if not isinstance(error, SourceThrottledError):
            shards = self._silent[arn].shards if arn in self._silent else 0
            self._silent[arn] = OutageCount(shards + 1, time.monotonic(), error)

    def _refuse_silent(self, arn: str) -> None:
        """Raise SourceUnavailableError where so many shards didn't answer just now.

        A thousand of them would be waited for one after the other.
        """
        silence = self._silent.get(arn)
        if (
            silence is not None
            and silence.shards >= PARALLEL_READS
            and time.monotonic() - silence.at < GIVE_UP_SECONDS
        ):
            raise SourceUnavailableError(
                f"not asked, as {silence.shards} shards in a row gave no answer: "
                f"{silence.error}"
            )

    async def _turn(self, key: ShardKey) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next.get(key, now))
        self._next[key] = turn + self._pace
        await asyncio.sleep(turn - now)


async def for_each_stream(
    clients: ClientFactory,
    arns: Iterable[str],
    ask: Callable[[str, KinesisSource], Awaitable[None]],
    roles: Roles = NO_ROLES,
) -> dict[str, KinesumerError]:
    """Ask something of every stream at once; return what went wrong, by ARN.

    A stream that can't be read is a problem of that stream only.
    """

    async def of(arn: str) -> KinesumerError | None:
        try:
            await ask(arn, await open_source(clients, roles.stream(arn)))
        except KinesumerError as error:
            return error
        return None

    arns = list(arns)
    found = await asyncio.gather(*(of(arn) for arn in arns))
    return {arn: error for arn, error in zip(arns, found, strict=True) if error}
