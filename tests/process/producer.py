"""Writes numbered records to streams, and remembers where Kinesis put each one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model import Position, ShardKey
from kinesumer.wire.encoding import UserRecord, aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.local import EmbeddedAws

KEYS = 40
"""Partition keys per stream: a few per shard."""
AGGREGATE_EVERY = 10
AGGREGATE_SIZE = 5
BURSTS_PER_SECOND = 20


class Produced(NamedTuple):
    """One user record, and where it is."""

    number: int
    key: str
    shard: ShardKey
    position: Position


class Producer:
    """A thread that goes on until it is stopped."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.records: dict[str, list[Produced]] = {}
        """By stream, in the order of their numbers."""
        self._aws = aws
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, arns: Sequence[str], per_second: float) -> None:
        """Produce this many records a second for each stream."""
        burst = max(1, round(per_second / BURSTS_PER_SECOND))

        def run() -> None:
            while not self._over.wait(burst / per_second):
                for arn in arns:
                    self.put(arn, burst)

        self._over.clear()
        self._thread = threading.Thread(target=run, name="producer")
        self._thread.start()

    def stop(self) -> None:
        """Stop producing."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def put(self, arn: str, count: int) -> None:
        """Put records at once; some of them are KPL aggregates of one key's records."""
        done = self.records.setdefault(arn, [])
        end = len(done) + count
        while len(done) < end:
            size = 1 if len(done) % AGGREGATE_EVERY else AGGREGATE_SIZE
            self._put(arn, done, min(size, end - len(done)))

    def _put(self, arn: str, done: list[Produced], size: int) -> None:
        first = len(done)
        key = f"key-{first % KEYS}"
        texts = [f"{number} {key}".encode() for number in range(first, first + size)]
        data = texts[0] if size == 1 else aggregate([UserRecord(t, key) for t in texts])
        shard_id, number = self._aws.put(arn, data, key)
        for part in range(size):
            position = Position(number, None if size == 1 else part)
            done.append(Produced(first + part, key, ShardKey(arn, shard_id), position))
