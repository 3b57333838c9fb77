"""Writes numbered records to streams, and remembers where Kinesis put each one."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.wire.put_records import UserRecord, aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.system.process.aws import Aws

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

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
    at: float = 0.0
    """When Kinesis had acknowledged it."""


class Producer:
    """A thread that goes on until it is stopped."""

    def __init__(self, aws: Aws) -> None:
        self.records: dict[str, list[Produced]] = {}
        """By stream, in the order of their numbers."""
        self._aws = aws
        self._arns: Sequence[str] = ()
        self._extra: deque[tuple[str, int]] = deque()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, arns: Sequence[str], per_second: float) -> None:
        """Produce this many records a second for each stream."""
        self.switch(arns)
        self._over.clear()
        self._thread = threading.Thread(
            target=self._run, args=(per_second,), name="producer"
        )
        self._thread.start()

    def switch(self, arns: Sequence[str]) -> None:
        """Produce to these streams from now on."""
        self._arns = tuple(arns)

    def add(self, arn: str, count: int) -> None:
        """Let the thread put more records than usual, once."""
        self._extra.append((arn, count))

    def stop(self) -> None:
        """Stop producing. Raises what ended it before, if it did."""
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
        except Exception as error:  # told by stop()
            self._failure = error

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
            shard = ShardKey(arn, shard_id)
            done.append(Produced(first + part, key, shard, position, now()))
