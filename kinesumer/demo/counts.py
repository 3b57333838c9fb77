"""What was produced and what was processed, as it comes in."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class Produced(NamedTuple):
    """A record that Kinesis took, and where."""

    number: int
    stream: int
    shard: int
    sequence_number: str
    part: int
    """Place in its aggregate, 0 if it isn't in one."""
    at: float
    """When Kinesis said that it had it."""

    @property
    def place(self) -> tuple[int, str, int]:
        """Order within the shard."""
        return len(self.sequence_number), self.sequence_number, self.part


class Processed(NamedTuple):
    """A record that a client has processed."""

    at: float
    number: int
    stream: int
    shard: int
    epoch: int
    client: str


class Ledger:
    """Both sides; numbers are compared at any time, judged at the end."""

    def __init__(self, streams: int) -> None:
        self.produced: list[Produced] = []
        self.processed: list[Processed] = []
        self.first_at: dict[int, float] = {}
        """When a number was processed for the first time."""
        self.uncertain: set[int] = set()
        """Numbers of which Kinesis didn't say whether it took them."""
        self.aggregates = 0
        self.by_client: Counter[str] = Counter()
        self._taken = [0] * streams
        self._done = [0] * streams
        self._waiting = [0] * streams
        self._in_order: list[list[Produced]] = [[] for _ in range(streams)]

    def put(self, record: Produced) -> None:
        """Note a record that was taken."""
        self.produced.append(record)
        self._taken[record.stream] += 1
        self._in_order[record.stream].append(record)

    def note(self, entry: Processed) -> None:
        """Note a record that was processed."""
        self.processed.append(entry)
        self.by_client[entry.client] += 1
        if entry.number not in self.first_at:
            self.first_at[entry.number] = entry.at
            self._done[entry.stream] += 1

    def behind(self, stream: int) -> int:
        """Return how many of a stream's records wait."""
        return max(0, self._taken[stream] - self._done[stream])

    def oldest_waiting(self, stream: int) -> float | None:
        """Return since when the oldest unprocessed record of a stream waits."""
        records, at = self._in_order[stream], self._waiting[stream]
        while at < len(records) and records[at].number in self.first_at:
            at += 1
        self._waiting[stream] = at
        return records[at].at if at < len(records) else None

    @property
    def is_level(self) -> bool:
        """Tell whether everything that was produced has been processed."""
        return all(record.number in self.first_at for record in self._unfinished())

    def _unfinished(self) -> list[Produced]:
        found = []
        for stream, records in enumerate(self._in_order):
            self.oldest_waiting(stream)
            found += records[self._waiting[stream] :]
        return found
