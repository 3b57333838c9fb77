"""Writes numbered records to streams, and remembers each one's shard and position."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial.journal import Produced, now
from kinesumer.wire.put_records import Entry, aggregate

KEYS = 40  # partition keys per stream; each shard has a few
AGGREGATE_EVERY = 10
AGGREGATE_SIZE = 5
BURSTS_PER_SECOND = 20


def parents_of(
    arn: str, shards: Iterable[Mapping[str, str]]
) -> dict[ShardKey, list[ShardKey]]:
    """Return the parents of each shard that ListShards returned."""
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        ShardKey(arn, shard["ShardId"]): [
            ShardKey(arn, shard[name]) for name in names if name in shard
        ]
        for shard in shards
    }


class Producer:
    """Puts records by ``aws.put()`` in a thread until it is stopped."""

    def __init__(self, aws: Any) -> None:
        # The records of each stream, in the order of their numbers.
        self.records: dict[str, list[Produced]] = {}
        self._aws = aws
        self._arns: Sequence[str] = ()
        self._extra: deque[tuple[str, int]] = deque()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, arns: Sequence[str], per_second: float) -> None:
        self.switch(arns)
        self._over.clear()
        self._thread = threading.Thread(
            target=self._run, args=(per_second,), name="producer"
        )
        self._thread.start()

    def switch(self, arns: Sequence[str]) -> None:
        self._arns = tuple(arns)

    def add(self, arn: str, count: int) -> None:
        """Let the thread put additional records once."""
        self._extra.append((arn, count))

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise RuntimeError("the producer had failed") from self._failure

    def _run(self, per_second: float) -> None:
        burst = max(1, round(per_second / BURSTS_PER_SECOND))
        try:
            while not self._over.wait(burst / per_second):
                for arn in self._arns:
                    self.put(arn, burst)
                while self._extra:
                    self.put(*self._extra.popleft())
        except Exception as error:  # stop() raises it
            self._failure = error

    def put(self, arn: str, count: int) -> None:
        """Put records. Some of them are KPL aggregates of one key's records."""
        done = self.records.setdefault(arn, [])
        end = len(done) + count
        while len(done) < end:
            size = 1 if len(done) % AGGREGATE_EVERY else AGGREGATE_SIZE
            self._put(arn, done, min(size, end - len(done)))

    def _put(self, arn: str, done: list[Produced], size: int) -> None:
        first = len(done)
        key = f"key-{first % KEYS}"
        texts = [f"{number} {key}".encode() for number in range(first, first + size)]
        data = texts[0] if size == 1 else aggregate([Entry(t, key) for t in texts])
        shard_id, number = self._aws.put(arn, data, key)
        for part in range(size):
            position = Position(number, None if size == 1 else part)
            shard = ShardKey(arn, shard_id)
            done.append(Produced(first + part, key, shard, position, now()))
