"""Writes numbered records to streams, and remembers each one's shard and position."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial.journal import Produced, make_entries

BURSTS_PER_SECOND = 20


class Producer:
    """Puts records by ``aws.put()`` in a thread until it is stopped."""

    def __init__(self, aws: Any) -> None:
        # The records of each stream, in the order of their numbers.
        self.records: dict[str, list[Produced]] = {}
        self._aws = aws
        self._chance = random.Random(0)
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
        numbers = range(len(done), len(done) + count)
        for entry in make_entries(numbers, self._chance):
            shard_id, sequence_number = self._aws.put(arn, entry.data, entry.key)
            done += entry.produced(ShardKey(arn, shard_id), sequence_number)
