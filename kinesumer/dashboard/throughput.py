"""Estimate each stream's records per second from the progress of a few shards.

Rows hold positions, not record counts. So the records between two positions of some
shards are read again and counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.sampling import SHARD_ERRORS
from kinesumer.admin.shard_reads import PacedReader, for_each_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StreamSource

Positions = dict["ShardKey", "Position"]

SAMPLED_SHARDS = 12
"""The number of shards per stream and measurement; the others count as the average."""
SAMPLE_BYTES = 256 * 1024
"""The bytes read of a shard: an eighth of Kinesis's limit for a second."""
FIRST_RECORDS, MAX_RECORDS = 10, 500


class Advance(NamedTuple):
    """A shard whose position has advanced."""

    shard: ShardKey
    old: Position
    new: Position


class Throughput:
    """Measures rates by sampling shards in turn."""

    def __init__(self, clients: ClientFactory, roles: Roles = NO_ROLES) -> None:
        self._clients, self._roles = clients, roles
        self._before: tuple[Positions, float] | None = None
        self._record_bytes: dict[str, float] = {}
        self._turn = 0

    async def measure(self, positions: Positions, now: float) -> dict[str, float]:
        """Return records per second by stream since the last call; first nothing.

        Leaves out streams that can't be read; their lags say why.
        """
        before, self._before = self._before, (positions, now)
        if before is None or now <= before[1]:
            return {}
        self._turn += 1
        streams = advances(before[0], positions)
        counts = {arn: 0.0 for arn, moved in streams.items() if not moved}
        reader = PacedReader()

        async def of_stream(arn: str, source: StreamSource) -> None:
            count = await self._stream(reader, source, streams[arn])
            if count is not None:
                counts[arn] = count

        moving = [arn for arn, moved in streams.items() if moved]
        await for_each_stream(self._clients, moving, of_stream, self._roles)
        seconds = now - before[1]
        return {arn: count / seconds for arn, count in counts.items()}

    async def _stream(
        self, reader: PacedReader, source: StreamSource, moved: Sequence[Advance]
    ) -> float | None:
        """Return how many records a stream's shards have processed, or None."""
        sample = choose_shards(moved, self._turn)
        counts = await asyncio.gather(
            *(self._shard(reader, source, one) for one in sample)
        )
        known = [count for count in counts if count is not None]
        return len(moved) * sum(known) / len(known) if known else None

    async def _shard(
        self, reader: PacedReader, source: StreamSource, moved: Advance
    ) -> float | None:
        shard, arn = moved.shard, moved.shard.stream_arn
        limit = sample_records(self._record_bytes.get(arn))
        try:
            page = await reader.read(source, shard, moved.old, limit)
            if page.records:
                self._record_bytes[arn] = page.wire_bytes / len(page.records)
            count = count_until(page, moved.new)
            if count is not None:
                return count
            at = moved.new._replace(sub_sequence_number=0)
            last = await reader.read(source, shard, at, 1)
        except SHARD_ERRORS:
            return None
        return extrapolate(page, last)


def advances(old: Positions, new: Positions) -> dict[str, list[Advance]]:
    """Return the shards that advanced, for every stream with positions."""
    streams: dict[str, list[Advance]] = {key.stream_arn: [] for key in new}
    for key, position in new.items():
        if key in old and position > old[key]:
            streams[key.stream_arn].append(Advance(key, old[key], position))
    return streams


def choose_shards(moved: Sequence[Advance], turn: int) -> list[Advance]:
    """Return some shards, spread evenly; other ones each turn."""
    count = min(SAMPLED_SHARDS, len(moved))
    step = len(moved) / count
    return [moved[int(i * step + turn) % len(moved)] for i in range(count)]


def sample_records(record_bytes: float | None) -> int:
    """Return how many records of a size to request."""
    if record_bytes is None:
        return FIRST_RECORDS
    return max(1, min(MAX_RECORDS, int(SAMPLE_BYTES / max(record_bytes, 1))))


def count_until(page: Page, end: Position) -> float | None:
    """Return how many of a page's records lie at or before a position.

    None if the page may end before it. A KPL aggregate counts as one record.
    """
    order = (len(end.sequence_number), end.sequence_number)
    numbers = [record.sequence_number for record in page.records]
    count = sum((len(number), number) <= order for number in numbers)
    reached = count < len(numbers) or end.sequence_number in numbers
    return float(count) if reached or not page.millis_behind else None


def extrapolate(page: Page, last: Page) -> float | None:
    """Return the number of records from a page's start to another page's first record.

    Assumes the page's rate. None if the records have no arrival times.
    """
    times = [
        record.approximate_arrival_timestamp
        for record in (*page.records[:1], *page.records[-1:], *last.records[:1])
    ]
    first, end, goal = (*times, None, None, None)[:3]
    if first is None or end is None or goal is None or end <= first:
        return None
    return len(page.records) * max(1.0, (goal - first) / (end - first))
