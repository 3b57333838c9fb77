"""Compare rules for the parallel requests of producers to a stream that is too small.

    python -m benchmarks.put_overload

Producers add records as fast as they can, in virtual time, to shards that accept 1,000
records a second each. A request takes 20 ms. Each record that a shard refuses is sent
again. Prints how often a record was sent until it was accepted; all rules take the same
time.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report
from kinesumer.producer.put_stream import THROTTLED
from kinesumer.producer.record_producer import MAX_REQUESTS, RecordProducer
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire.put_records import Entry, EntryResult
from tests.support.toy_stream import INFO, TAKEN, PutTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = 20
FLEETS = ((1, 1), (4, 1), (16, 1), (1, 5), (4, 5))  # shards, producers


def fixed(requests: float) -> type[RecordProducer]:
    """Return producers that always make up to this many requests at once."""

    class Fixed(RecordProducer):
        _window: Any = property(lambda self: requests, lambda self, value: None)

    return Fixed


class SmallStream(PutTarget):
    """A stream that accepts 1,000 records a second and shard."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self._buckets = [Bucket(1000.0) for _ in range(shards)]
        self.sent = self.taken = 0

    async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
        """Accept the records for which their shards have room."""
        await asyncio.sleep(0.02)
        now = asyncio.get_running_loop().time()
        results = [self._put(record, now) for record in records]
        self.sent += len(records)
        self.taken += sum(not result.error_code for result in results)
        return results

    def _put(self, record: Entry, now: float) -> EntryResult:
        bucket = self._buckets[int(record.partition_key or 0) % len(self._buckets)]
        return TAKEN if bucket.take(1, now) else EntryResult(error_code=THROTTLED)


def sent_per_record(kind: type[RecordProducer], shards: int, producers: int) -> float:
    """Return how often records were sent until they were accepted."""
    stream = SmallStream(shards)

    async def produce(seed: int) -> None:
        chance = random.Random(seed)
        producer = kind(stream, INFO, ordered=False, chance=chance)
        for number in range(1000 * SECONDS * shards // producers):
            await producer.add(Entry(b"x" * 100, str(number)))
        await producer.flush()

    async def produce_all() -> None:
        await asyncio.gather(*map(produce, range(producers)))

    VirtualLoop(random.Random(1)).run(produce_all())
    return stream.sent / stream.taken


def main() -> None:
    """Print one table for all rules and fleets."""
    rules: dict[str, type[RecordProducer]] = {
        "window": RecordProducer,
        "always 4": fixed(4),
        "always 8": fixed(8),
    }
    report = Report(f"times that a record is sent, at most {MAX_REQUESTS:.0f} at once")
    for shards, producers in FLEETS:
        for name, kind in rules.items():
            sent = sent_per_record(kind, shards, producers)
            report.note(
                f"{shards} shards, {producers} producers, {name}", f"{sent:.2f}"
            )
    report.print()


if __name__ == "__main__":
    main()
