"""A table's stream in memory, with shards that close, split and expire."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count

import msgspec

from kinesumer.aws.table_polling import (
    Described,
    NoTimestampsError,
    Skips,
    TablePollingSource,
)
from kinesumer.errors import (
    InvalidPositionError,
    ShardMissingError,
    SourceThrottledError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Clock, Reservation
from kinesumer.wire.table_streams import StreamPage, key_text, shard_place

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/customers/stream/2026-01-31"


class ToyShard(msgspec.Struct):
    """A shard, and its records."""

    shard_id: str
    parents: tuple[str, ...]
    records: list[Record] = []
    end: str | None = None
    trimmed: int = 0  # how many of its records have expired

    def entry(self) -> Shard:
        """Return the shard as DescribeStream lists it."""
        place = shard_place(self.shard_id)
        return Shard(self.shard_id, place, place, self.parents, self.end)


class ToyTable:
    """The stream of the table "customers"."""

    def __init__(
        self,
        *,
        page_shards: int = 100,
        has_times: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.shards: list[ToyShard] = []
        self.page_shards, self.has_times = page_shards, has_times
        self.status, self._now, self._clock = "ENABLED", 1000.0, clock
        self.latest: str | None = None
        self.described: list[dict[str, object]] = []
        self.placed: list[Position | Start] = []
        self.hidden: set[str] = set()  # shards that aren't listed yet
        self.knows_filter = True
        self.throttles = 0  # how many of the next calls are refused
        self._numbers = 10**20
        self._ids = count()
        self.source = ToySource(self)

    @property
    def now(self) -> float:
        """The service's time, which a test sets unless there is a clock."""
        return self._now if self._clock is None else self._clock.wall()

    @now.setter
    def now(self, now: float) -> None:
        self._now = now

    def open(self, *parents: str) -> str:
        """Add a shard, and return its id. Its parents must have closed."""
        shard_id = f"shardId-{next(self._ids):020d}"
        self.shards.append(ToyShard(shard_id, parents, []))
        return shard_id

    def put(self, shard_id: str, count: int = 1) -> None:
        """Add records to an open shard."""
        for _ in range(count):
            self._numbers += 7
            key = key_text({"id": {"S": str(self._numbers)}})
            record = Record(str(self._numbers), b"{}", key, self.now // 1)
            self.shard(shard_id).records.append(record)

    def roll_over(self, shard_id: str, children: int = 1) -> list[str]:
        """Close a shard, and open its children."""
        self._numbers += 1
        self.shard(shard_id).end = str(self._numbers)
        return [self.open(shard_id) for _ in range(children)]

    def disable(self) -> None:
        """Disable the stream, which closes all shards."""
        self.status = "DISABLED"
        for shard in self.shards:
            shard.end = shard.end or str(self._numbers)

    def shard(self, shard_id: str) -> ToyShard:
        """Return a shard. Raise ShardMissingError."""
        for shard in self.shards:
            if shard.shard_id == shard_id:
                return shard
        raise ShardMissingError(f"no shard {shard_id}")


class ToySource(TablePollingSource):
    """A source that reads the stream."""

    def __init__(self, table: ToyTable, skips: Skips | None = None) -> None:
        super().__init__(skips)
        self.table = table

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        return "stream table/customers"

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a block that waits for nothing."""
        return nullcontext()

    async def _describe(self, **arguments: object) -> Described:
        self.table.described.append(arguments)
        await asyncio.sleep(0)
        if self.table.throttles:
            self.table.throttles -= 1
            raise SourceThrottledError("too many calls")
        entries = [
            s.entry() for s in self.table.shards if s.shard_id not in self.table.hidden
        ]
        after = arguments.get("ExclusiveStartShardId")
        rest = [e for e in entries if after is None or e.shard_id > str(after)]
        wanted = arguments.get("ShardFilter")
        if isinstance(wanted, dict) and self.table.knows_filter:
            rest = [e for e in rest if wanted["ShardId"] in e.parents]
        limit = min(self.table.page_shards, int(str(arguments.get("Limit", 100))))
        found = rest[:limit]
        last = found[-1].shard_id if len(rest) > limit else None
        page = StreamPage(
            ARN, "customers", self.table.status, 5.0, "NEW_IMAGE", found, last
        )
        return Described(page, self.table.now)

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        self.table.placed.append(after)
        shard = self.table.shard(shard_id)
        records = shard.records
        if isinstance(after, Position):
            numbers = [record.sequence_number for record in records]
            if after.sequence_number not in numbers:
                raise InvalidPositionError(f"no record {after.sequence_number}")
            index = numbers.index(after.sequence_number) + 1
            if index <= shard.trimmed:
                raise TrimmedPositionError(f"record {after.sequence_number} is trimmed")
        elif after.timestamp is not None:
            if not self.table.has_times:
                raise NoTimestampsError("no times")
            times = [r.approximate_arrival_timestamp or 0.0 for r in records]
            index = sum(time < after.timestamp for time in times)
        else:
            index = len(records) if after == Start.LATEST else 0
        return f"{shard_id}|{max(index, shard.trimmed)}"

    async def _read(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        shard_id, _, text = iterator.partition("|")
        shard, first = self.table.shard(shard_id), int(text)
        records = shard.records[first : first + limit]
        following = first + len(records)
        is_over = shard.end is not None and following == len(shard.records)
        last = records[-1].approximate_arrival_timestamp if records else None
        behind = 0 if last is None else max(0, int(1000 * (self.table.now - last - 1)))
        return Page(
            list(records), None if is_over else f"{shard_id}|{following}", behind
        )

    async def _latest_arn(self) -> str | None:
        return self.table.latest
