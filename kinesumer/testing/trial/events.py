"""The events of a run, and the counts of its produced and processed records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.streams import ShardKey
    from kinesumer.testing.trial.journal import Handled, Produced

# After a crash, at most this many records of a shard may be processed again. A low
# limit makes a trial a harder test.
MAX_UNCOMMITTED_RECORDS = 1000


@dataclass(kw_only=True)
class Event:
    """A fault or change that the scenario caused. ``at`` is on the monotonic clock."""

    kind: str
    at: float
    text: str
    client: str = ""
    was_leader: bool = False
    # If a client was killed: the shards that it held.
    shards: set[ShardKey] = field(default_factory=set)


class RecordCounts:
    """Collects and counts the produced and the processed records of a run."""

    def __init__(self, streams: Iterable[str]) -> None:
        """Begin without records. ``streams`` are the ARNs of the streams."""
        self.produced: list[Produced] = []
        self.processed: list[Handled] = []
        # For each record's number, the time at which the record was first processed.
        self.first_processed_at: dict[int, float] = {}
        # Numbers of records in failed requests. Kinesis may have accepted them anyway.
        self.uncertain: set[int] = set()
        self.aggregates = 0
        self._processed_counts: Counter[str] = Counter()
        self._in_order: dict[str, list[Produced]] = {arn: [] for arn in streams}
        self._first_waiting: Counter[str] = Counter()

    def add_produced(self, record: Produced) -> None:
        """Count a produced record."""
        self.produced.append(record)
        self._in_order[record.shard.stream_arn].append(record)

    def add_processed(self, entry: Handled) -> None:
        """Count a processed record."""
        self.processed.append(entry)
        if entry.number not in self.first_processed_at:
            self.first_processed_at[entry.number] = entry.ended
            self._processed_counts[entry.shard.stream_arn] += 1

    def behind(self, arn: str) -> int:
        """Return how many of a stream's records have not been processed yet."""
        return max(0, len(self._in_order[arn]) - self._processed_counts[arn])

    def oldest_waiting(self, arn: str) -> float | None:
        """Return when a stream's oldest unprocessed record was produced, or None."""
        records, index = self._in_order[arn], self._first_waiting[arn]
        done = self.first_processed_at
        while index < len(records) and records[index].number in done:
            index += 1
        self._first_waiting[arn] = index
        return records[index].at if index < len(records) else None

    @property
    def all_processed(self) -> bool:
        """Return whether every produced record has been processed."""
        return all(self.oldest_waiting(arn) is None for arn in self._in_order)
