"""Records a second of each stream, estimated from what a few shards have done.

The rows tell where a shard's checkpoint is, not how many records came before it. So the
records between two checkpoints of some shards are read again and counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.kinesis import open_source
from kinesumer.errors import KinesumerError
from kinesumer.operations.reaching import NO_ROLES, Roles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.aws.session import Clients
    from kinesumer.model import Page, Position, ShardKey
    from kinesumer.ports import StreamSource

Positions = dict["ShardKey", "Position"]

SAMPLED_SHARDS = 12
"""Of each stream, each time: others are taken to do as much."""
SAMPLE_BYTES = 256 * 1024
"""What is read of a shard: an eighth of what Kinesis gives in a second."""
FIRST_RECORDS, MOST_RECORDS = 10, 500


class Advance(NamedTuple):
    """A shard whose checkpoint has moved."""

    shard: ShardKey
    old: Position
    new: Position


class Throughput:
    """Samples shards in turn, and learns how large each stream's records are."""

    def __init__(self, clients: Clients, roles: Roles = NO_ROLES) -> None:
        self._clients, self._roles = clients, roles
        self._before: tuple[Positions, float] | None = None
        self._record_bytes: dict[str, float] = {}
        self._turn = 0

    async def measure(self, positions: Positions, now: float) -> dict[str, float]:
        """Return records a second by stream since the call before; at first nothing.

        A stream that can't be read, or whose shards can't be judged, isn't there.
        """
        before, self._before = self._before, (positions, now)
        if before is None or now <= before[1]:
            return {}
        self._turn += 1
        streams = advances(before[0], positions)
        counts = await asyncio.gather(
            *(self._stream(arn, moved) for arn, moved in streams.items())
        )
        seconds = now - before[1]
        return {
            arn: count / seconds
            for arn, count in zip(streams, counts, strict=True)
            if count is not None
        }

    async def _stream(self, arn: str, moved: Sequence[Advance]) -> float | None:
        """Return how many records a stream's shards have done, or None."""
        if not moved:
            return 0.0
        try:
            source = await open_source(self._clients, self._roles.stream(arn))
            await source.describe()
        except KinesumerError:
            return None  # the lag tells what is wrong with the stream
        sample = chosen(moved, self._turn)
        counts = await asyncio.gather(*(self._shard(source, one) for one in sample))
        known = [count for count in counts if count is not None]
        return len(moved) * sum(known) / len(known) if known else None

    async def _shard(self, source: StreamSource, moved: Advance) -> float | None:
        arn, shard_id = moved.shard
        limit = sample_records(self._record_bytes.get(arn))
        try:
            iterator = await source.get_iterator(shard_id, moved.old)
            page = await source.get_records(iterator, limit)
            if page.records:
                self._record_bytes[arn] = page.wire_bytes / len(page.records)
            count = counted(page, moved.new)
            if count is not None:
                return count
            at = moved.new._replace(sub_sequence_number=0)
            last = await source.get_records(await source.get_iterator(shard_id, at), 1)
        except KinesumerError:
            return None
        return extrapolated(page, last)


def advances(old: Positions, new: Positions) -> dict[str, list[Advance]]:
    """Return, for every stream that has positions, the shards that went forward."""
    streams: dict[str, list[Advance]] = {key.stream_arn: [] for key in new}
    for key, position in new.items():
        if key in old and position > old[key]:
            streams[key.stream_arn].append(Advance(key, old[key], position))
    return streams


def chosen(moved: Sequence[Advance], turn: int) -> list[Advance]:
    """Return some shards, spread over all; others each turn."""
    count = min(SAMPLED_SHARDS, len(moved))
    step = len(moved) / count
    return [moved[int(i * step + turn) % len(moved)] for i in range(count)]


def sample_records(record_bytes: float | None) -> int:
    """Return how many records to ask for where one takes so many bytes."""
    if record_bytes is None:
        return FIRST_RECORDS
    return max(1, min(MOST_RECORDS, int(SAMPLE_BYTES / max(record_bytes, 1))))


def counted(page: Page, end: Position) -> float | None:
    """Return how many of a page's records lie at or before a position.

    None if the page may not reach so far. Records of KPL aggregates count as one.
    """
    order = (len(end.sequence_number), end.sequence_number)
    numbers = [record.sequence_number for record in page.records]
    count = sum((len(number), number) <= order for number in numbers)
    reached = count < len(numbers) or end.sequence_number in numbers
    return float(count) if reached or not page.millis_behind else None


def extrapolated(page: Page, last: Page) -> float | None:
    """Return how many records there are from a page's begin to the last one.

    As many for each second as the page has. None if the page tells no time.
    """
    times = [
        record.approximate_arrival_timestamp
        for record in (*page.records[:1], *page.records[-1:], *last.records[:1])
    ]
    first, end, goal = (*times, None, None, None)[:3]
    if first is None or end is None or goal is None or end <= first:
        return None
    return len(page.records) * max(1.0, (goal - first) / (end - first))
