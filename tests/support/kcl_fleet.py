"""Keep a KCL fleet's table and streams in memory, with rows from real workers."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from kinesumer.aws.dynamodb_calls import attribute_of, row_of
from kinesumer.aws.streams import decode_shards
from kinesumer.config import Config
from kinesumer.model.rows import Row
from kinesumer.ops.group.connect import operator_context
from kinesumer.ports import Write, WriteResult
from kinesumer.runtime.context import ClientContext
from kinesumer.testing.kinesis.shards import Shard as MemoryShard
from kinesumer.testing.kinesis.shards import StoredRecord
from kinesumer.testing.kinesis.streams import GrowingNumbers, Stream
from kinesumer.testing.memory import MemoryKinesis, MemorySource, MemoryStore
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.memory_kinesis import SUBSCRIPTION_LIMITS
from kinesumer.wire.conditions import holds
from tests.support.clock import StillClock

HERE = Path(__file__).parent
Item = dict[str, dict[str, Any]]  # a row in DynamoDB's JSON
# Streams with their records, and lease tables that KCL 3.5.1 for Java wrote.
FIXTURE: dict[str, Any] = json.loads((HERE / "kcl-3.5.1.json").read_text())
VERSIONS: dict[str, Any] = json.loads((HERE / "kcl-versions.json").read_text())
"""What KCL 1.15.1, 2.6.0 and 3.5.1 wrote for three similar streams. Each of them had
prepared a checkpoint, but hadn't made it."""
ACCOUNT = "000000000000"
ORDERS = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/orders"
PAYMENTS = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/payments"
# Positions in S0 and S1.
AGGREGATE = "49017952649043560000000000000000000000000000002300000000"
PLAIN = "49017952649043560000000000000000000000000000002200000001"
S0, S1, S2, S3 = (f"shardId-{number:012}" for number in range(4))
QUICK = Config(heartbeat_interval_seconds=0.1, lease_duration_seconds=1.0)


def rows_of(items: Iterable[Item]) -> list[Row]:
    """Return items as rows."""
    return [row_of(item) for item in items]


class MemoryLeases:
    """A lease table in memory, in DynamoDB's JSON.

    ``before_scan`` may change it between two scans.
    """

    def __init__(self, items: list[Item], name: str = "leases") -> None:
        self.name: str = name
        self.rows = {item["leaseKey"]["S"]: deepcopy(item) for item in items}
        self.before_scan: list[Any] = []

    async def scan(self, *, consistent: bool = False) -> list[Row]:
        if self.before_scan:
            self.before_scan.pop(0)()
        return rows_of(self.rows.values())

    async def get(self, lease_key: str) -> Row | None:
        return row_of(self.rows[lease_key]) if lease_key in self.rows else None

    async def write(self, write: Write) -> WriteResult:
        before = await self.get(write.key.pk)
        if not holds(write.condition, before):
            return WriteResult(False, before)
        row = self.rows.setdefault(write.key.pk, {"leaseKey": {"S": write.key.pk}})
        row.update({name: attribute_of(value) for name, value in write.set.items()})
        for name in write.remove:
            row.pop(name, None)
        return WriteResult(True, row_of(row))

    def beat(self, key: str) -> None:
        row = self.rows[key]
        row["leaseCounter"] = {"N": str(int(row["leaseCounter"]["N"]) + 1)}


class World:
    """The streams of the fixtures, and an empty state store for the app "a"."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(0))
        # Some minutes after the fleet's run.
        self.clock = StillClock(1795266000.0)
        self.kinesis = MemoryKinesis(self.clock, account=ACCOUNT, reads_per_second=0)
        for fixture in (FIXTURE, VERSIONS):
            for each in fixture["streams"].values():
                stream = _stream(each)
                self.kinesis.service.streams[stream.arn] = stream
        self.store = MemoryStore(self.clock)

    def context(self, app: str = "a") -> ClientContext:
        return replace(operator_context(app, self.store), config=QUICK)

    async def open(self, name: str) -> MemorySource:
        return self.kinesis.source(name)


def leases(table: str, **changes: dict[str, Any]) -> MemoryLeases:
    """Return a lease table. ``changes`` maps ends of lease keys to new attributes."""
    known = FIXTURE["tables"] | VERSIONS["tables"]
    made = MemoryLeases(known[table], table)
    for end, attributes in changes.items():
        key = next(key for key in made.rows if key.endswith(end.lstrip("_")))
        made.rows[key].update(attributes)
    return made


def _stream(fixture: dict[str, Any]) -> Stream:
    created, numbers = fixture["created"], GrowingNumbers()
    numbers.first = 0  # AWS has numbered the records
    stream = Stream(fixture["arn"], 0, created, SUBSCRIPTION_LIMITS, numbers=numbers)
    stream.status, stream.next_number = "ACTIVE", 10**57
    listing = json.dumps({"Shards": fixture["shards"]}).encode()
    for serial, shard in enumerate(decode_shards(listing)[0]):
        listed = fixture["shards"][serial]["SequenceNumberRange"]
        first = listed["StartingSequenceNumber"]
        made = MemoryShard(shard, serial, first, 0.0, SUBSCRIPTION_LIMITS)
        made.closed_at = 0.0 if shard.closed else None
        made.log = [
            StoredRecord(number, b64decode(data), "p", created + 60)
            for number, data in fixture["records"][shard.shard_id]
        ]
        stream.shards[shard.shard_id] = made
        if not shard.closed:
            stream.open.append(made)
    return stream
