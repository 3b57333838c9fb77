"""Produce records, and consume them, in tests of the producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kinesumer import (
    Config,
    Kinesumer,
    Record,
    Start,
)
from kinesumer.producer.pending import PutFuture
from kinesumer.producer.record_producer import (
    RecordProducer,
)
from kinesumer.wire.put_records import Entry

QUICK = Config(
    heartbeat_interval_seconds=0.3,
    lease_duration_seconds=5.0,
    rebalance_delay_seconds=0.1,
    leader_interval_seconds=0.1,
    listing_interval_seconds=1.0,
)


async def consumed(data: Iterable[bytes]) -> list[Record]:
    """Consume the stream ``orders`` from its beginning until all data was seen."""
    found: list[Record] = []
    missing = Counter(data)
    async with Kinesumer("app", table="kinesumer-state-store", config=QUICK) as client:
        async for record in client.consume("orders", start=Start.TRIM_HORIZON):
            found.append(record)
            missing -= Counter([record.data])
            if not missing:
                break
    return found


def texts(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


async def add_all(
    producer: RecordProducer, entries: Iterable[Entry]
) -> list[PutFuture]:
    return [await producer.add(entry) for entry in entries]
