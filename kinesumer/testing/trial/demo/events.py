"""The events of a run, and its produced and processed records with their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# A shard: its stream's index in the demo's list of streams, and the number in its ID.
StreamShard = tuple[int, int]
Parents = Mapping[StreamShard, Iterable[StreamShard]]  # The parents of each shard


@dataclass(kw_only=True)
class Event:
    """A fault or change that the scenario caused. ``at`` is on the monotonic clock."""

    kind: str
    at: float
    text: str
    client: str = ""
    was_leader: bool = False
    # If a client was killed: the shards that it held.
    shards: set[StreamShard] = field(default_factory=set)


class Produced(NamedTuple):
    """A record that Kinesis accepted, and its position."""

    number: int
    stream: int
    shard: int
    sequence_number: str
    # The record's index in its KPL aggregate, or 0 if it isn't in an aggregate.
    sub_sequence_number: int
    at: float  # Time at which PutRecords returned

    @property
    def position(self) -> tuple[int, str, int]:
        """Return a value by which the records of a shard can be sorted."""
        number = self.sequence_number
        return len(number), number, self.sub_sequence_number


class Processed(NamedTuple):
    """A record that a client has processed."""

    at: float
    number: int
    stream: int
    shard: int
    epoch: int
    client: str


class RecordCounts:
    """Collects and counts the produced and the processed records of a run."""

    def __init__(self, streams: int) -> None:
        self.produced: list[Produced] = []
        self.processed: list[Processed] = []
        # For each record's number, the time at which the record was first processed.
        self.first_processed_at: dict[int, float] = {}
        # Numbers of records in failed requests. Kinesis may have accepted them anyway.
        self.uncertain: set[int] = set()
        self.aggregates = 0
        self.by_client: Counter[str] = Counter()
        self._produced_counts = [0] * streams
        self._processed_counts = [0] * streams
        self._in_order: list[list[Produced]] = [[] for _ in range(streams)]
        self._first_waiting = [0] * streams

    def add_produced(self, record: Produced) -> None:
        """Count a produced record."""
        self.produced.append(record)
        self._produced_counts[record.stream] += 1
        self._in_order[record.stream].append(record)

    def add_processed(self, entry: Processed) -> None:
        """Count a processed record."""
        self.processed.append(entry)
        self.by_client[entry.client] += 1
        if entry.number not in self.first_processed_at:
            self.first_processed_at[entry.number] = entry.at
            self._processed_counts[entry.stream] += 1

    def behind(self, stream: int) -> int:
        """Return how many of a stream's records have not been processed yet."""
        return max(0, self._produced_counts[stream] - self._processed_counts[stream])

    def oldest_waiting(self, stream: int) -> float | None:
        """Return when a stream's oldest unprocessed record was produced, or None."""
        records, index = self._in_order[stream], self._first_waiting[stream]
        while index < len(records) and self._is_processed(records[index]):
            index += 1
        self._first_waiting[stream] = index
        return records[index].at if index < len(records) else None

    @property
    def all_processed(self) -> bool:
        """Return whether every produced record has been processed."""
        streams = range(len(self._in_order))
        return all(self.oldest_waiting(stream) is None for stream in streams)

    def _is_processed(self, record: Produced) -> bool:
        return record.number in self.first_processed_at
