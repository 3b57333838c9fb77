"""Model a table's stream: its shards, how they roll over, split and expire."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Any, Literal

import msgspec

from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.kinesis.requests import invalid_request, not_found
from kinesumer.testing.kinesis.shards import hash_key
from kinesumer.testing.table_streams.changes import (
    TTL_IDENTITY,
    Change,
    ViewType,
    event_id,
    images_of,
    partition_text,
)
from kinesumer.testing.table_streams.settings import TableStreamSettings
from kinesumer.testing.table_streams.shards import (
    Partition,
    StreamRecord,
    TableShard,
)

EXPIRY_SECONDS = 1.0  # all shards are searched for expired records so often
_first_hash = attrgetter("first_hash")


class SequenceNumbers:
    """Counts the records and shards of all streams, in numbers of 21 digits and more.

    AWS's numbers have from 21 to 40 digits. After 40 of these numbers, they have one
    more digit, which reveals code that compares them as text.
    """

    def __init__(self) -> None:
        self._next = 10**21 - 40

    def take(self) -> str:
        """Return a number that is greater than all before."""
        self._next += 1
        return str(self._next - 1)

    def is_taken(self, text: str) -> bool:
        """Return whether a text is a number, and not greater than the last one."""
        return text.isascii() and text.isdecimal() and int(text) < self._next


class TableStream:
    """One stream of a table, from the moment it is enabled.

    Each partition of the table has one open shard. After ``rollover_seconds``, the
    shard closes, and its child takes the partition's changes. A closed shard expires
    ``retention_seconds`` later.
    """

    def __init__(
        self,
        arn: str,
        key_schema: list[dict[str, str]],
        view: ViewType,
        now: float,
        settings: TableStreamSettings,
        numbers: SequenceNumbers,
    ) -> None:
        self.arn = arn
        self.key_schema = key_schema
        self.view: ViewType = view
        self.created_at = now
        self.settings = settings
        self.numbers = numbers
        self.disabled_at: float | None = None
        self.shards: dict[str, TableShard] = {}
        # Open shards by first hash key.
        self.open: list[TableShard] = []
        self._ids: list[str] = []  # of all shards, in the order of their creation
        self._serial = 0
        self._expired_at = now
        bounds = [
            HASH_KEYS * i // settings.partitions for i in range(settings.partitions + 1)
        ]
        for first, end in itertools.pairwise(bounds):
            self.open.append(self._add(Partition(first, end - 1), now, None))
        self._rolls_over_at: float = now + settings.rollover_seconds

    @property
    def table_name(self) -> str:
        """The name of the stream's table."""
        return self.arn.split("/")[1]

    @property
    def label(self) -> str:
        """The time at which the stream was enabled, as the last part of its ARN."""
        return self.arn.rpartition("/")[2]

    @property
    def status(self) -> Literal["ENABLED", "DISABLED"]:
        """The stream's status."""
        return "ENABLED" if self.disabled_at is None else "DISABLED"

    @property
    def is_gone(self) -> bool:
        """True if the stream was disabled, and all of it has expired."""
        return self.disabled_at is not None and not self.shards

    # --- shards ----------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Roll over the shards that are due, and expire what is too old."""
        while self.disabled_at is None and self._rolls_over_at <= now:
            at, seconds = self._rolls_over_at, self.settings.rollover_seconds
            for shard in self.open.copy():
                if shard.opened_at + seconds <= at:
                    self._succeed(shard, [shard.partition], at)
            self._rolls_over_at = min(shard.opened_at for shard in self.open) + seconds
        if now >= self._expired_at + EXPIRY_SECONDS:
            self._expired_at = now
            self._expire(now - self.settings.retention_seconds)

    def roll_over(self, now: float) -> None:
        """Close each open shard, and open one child of it."""
        for shard in self.open.copy():
            self._succeed(shard, [shard.partition], now)
        self._rolls_over_at = now + self.settings.rollover_seconds

    def split(self, shard_id: str, now: float) -> None:
        """Split the partition of an open shard into two halves, each with a child.

        DynamoDB splits the partitions of a table with much traffic. Raise AwsError if
        the shard doesn't exist, is closed, or has only one hash key.
        """
        shard = self.shard(shard_id)
        first, last = shard.partition
        if shard.closed or first == last:
            raise invalid_request(
                f"Shard {shard_id} of {self.arn} is closed, or too small to be split."
            )
        middle = (first + last + 1) // 2
        halves = [Partition(first, middle - 1), Partition(middle, last)]
        self._succeed(shard, halves, now)

    def disable(self, now: float) -> None:
        """Close all shards. What they have stays readable until it expires."""
        self.disabled_at = now
        for shard in self.open:
            shard.close(now)
        self.open.clear()

    def shard(self, shard_id: str) -> TableShard:
        """Return a shard. Raise ResourceNotFoundException if it is missing."""
        shard = self.shards.get(shard_id)
        if shard is None:
            raise not_found(
                "Requested resource not found: Shard does not exist: "
                f"{shard_id} in {self.arn}"
            )
        return shard

    def listing(self, after: str, count: int) -> list[TableShard]:
        """Return up to ``count`` shards whose ids follow one, in the order of ids."""
        start = bisect_right(self._ids, after)
        return [self.shards[each] for each in self._ids[start : start + count]]

    def children(self, shard_id: str) -> list[TableShard]:
        """Return the children of a shard in the order of ids.

        A shard that is unknown or has expired has none.
        """
        parent = self.shards.get(shard_id)
        children = [] if parent is None else parent.children
        return sorted(children, key=attrgetter("shard_id"))

    def _add(
        self, partition: Partition, now: float, parent: TableShard | None
    ) -> TableShard:
        self._serial += 1
        shard = TableShard(
            # Ids are in the order of creation, as the time in AWS's ids suggests.
            f"shardId-{round(now * 1000):020d}-{self._serial:08x}",
            partition,
            parent.shard_id if parent else None,
            self.numbers.take(),
            now,
            self.settings,
        )
        self.shards[shard.shard_id] = shard
        self._ids.append(shard.shard_id)
        return shard

    def _succeed(
        self, shard: TableShard, partitions: list[Partition], now: float
    ) -> None:
        """Close a shard, and open a child for each partition, in their order."""
        shard.close(now)
        shard.children += [self._add(each, now, shard) for each in partitions]
        place = bisect_left(self.open, shard.first_hash, key=_first_hash)
        self.open[place : place + 1] = shard.children

    def _expire(self, before: float) -> None:
        for shard in list(self.shards.values()):
            shard.expire(before)
            if shard.closed_at is not None and shard.closed_at < before:
                del self.shards[shard.shard_id]
        self._ids = list(self.shards)

    # --- records ---------------------------------------------------------------------

    def route(self, change: Change) -> TableShard:
        """Return the open shard of the partition that has an item."""
        key = partition_text(change.keys, self.key_schema[0]["AttributeName"])
        place = bisect_right(self.open, hash_key(key), key=_first_hash)
        return self.open[place - 1]

    def append(self, change: Change, region: str, now: float) -> None:
        """Store a record of a change, unless nothing changed."""
        name = change.event_name
        if name is None or self.disabled_at is not None:
            return
        number = self.numbers.take()
        images = images_of(change, self.view)
        content: dict[str, Any] = {
            "eventID": event_id(self.arn, number),
            "eventName": name,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": region,
            "dynamodb": {
                # AWS rounds this time down to the second.
                "ApproximateCreationDateTime": int(now),
                **images.content,
                "SequenceNumber": number,
                "SizeBytes": images.size_bytes,
                "StreamViewType": self.view,
            },
        }
        if change.is_expiry:
            content["userIdentity"] = TTL_IDENTITY
        self.route(change).log.append(
            StreamRecord(number, now, images.size_bytes, msgspec.json.encode(content))
        )
