"""Simulate the rows, lags and records of a fleet without AWS, as tests set them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.reports import Load
from kinesumer.model.rows import GroupRow, LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.dashboard.actions import Action, Preview
from kinesumer.ops.dashboard.records import RecordsRequest, answer
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.records import FoundRecords
from kinesumer.ops.group.snapshot import Snapshot
from tests.support.shares import stored_loads

ARN = "arn:aws:kinesis:eu-central-1:000000000000:stream/"


def arn_of(name: str) -> str:
    return ARN + name


def shard(number: int, stream: str = "orders") -> ShardKey:
    return ShardKey(arn_of(stream), f"shardId-{number:012d}")


def small() -> ToyFleet:
    """Return two clients that share two streams."""
    return ToyFleet(["worker-1", "worker-2"], {"orders": 4, "audit": 2})


class ToyFleet:
    """Clients that share streams evenly; tests move, pause and split shards."""

    def __init__(self, clients: Iterable[str], streams: dict[str, int]) -> None:
        self.random = random.Random(7)
        self.members: dict[str, MemberRow] = {}
        self.streams = {
            arn_of(name): StreamRow(arn_of(name), 0.0, Start.LATEST, baseline=True)
            for name in streams
        }
        self.shards: dict[ShardKey, ShardRow] = {}
        self.group = GroupRow("group")
        self.millis: dict[ShardKey, int] = {}
        self.trouble: KinesumerError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.leader = ""
        self.assignor = ""
        for name, count in streams.items():
            self._add_shards(arn_of(name), count)
        for client_id in clients:
            self.join(client_id)
        self.plan()
        self.settle()

    def _add_shards(self, arn: str, count: int) -> None:
        for i in range(count):
            key = ShardKey(arn, f"shardId-{i:012d}")
            first, end = HASH_KEYS * i // count, HASH_KEYS * (i + 1) // count
            self.shards[key] = ShardRow(key, first, end - 1, Start.LATEST, ready=True)
            self.millis[key] = 0

    def join(self, client_id: str, **fields: object) -> None:
        """Register a client; the first one leads."""
        member = MemberRow(client_id, f"session of {client_id}", **fields)  # type: ignore[arg-type]
        self.members[client_id] = member._replace(streams=frozenset(self.streams))
        self.leader = self.leader or client_id

    def change(self, client_id: str, **fields: object) -> None:
        self.members[client_id] = self.members[client_id]._replace(**fields)  # type: ignore[arg-type]

    def change_shard(self, key: ShardKey, **fields: object) -> None:
        self.shards[key] = self.shards[key]._replace(**fields)  # type: ignore[arg-type]

    def bury(self, client_id: str) -> None:
        self.change(client_id, dead=True)
        if self.leader == client_id:
            self.leader = next(m.client_id for m in self.members.values() if not m.dead)

    def plan(self) -> None:
        """Plan an equal part of every stream for each client that takes shards."""
        takers = [m for m in self.members.values() if not (m.dead or m.drained)]
        ranges: dict[str, list[Interval]] = {m.client_id: [] for m in takers}
        for arn in self.streams:
            for index, member in enumerate(takers):
                first = HASH_KEYS * index // len(takers)
                last = HASH_KEYS * (index + 1) // len(takers) - 1
                ranges[member.client_id].append(Interval(arn, first, last))
        for client_id, member in self.members.items():
            range_ = tuple(ranges.get(client_id, ()))
            index = list(self.members).index(client_id)
            self.members[client_id] = member._replace(range=range_, index=index)

    def plan_by_load(self, seconds: Mapping[ShardKey, float]) -> None:
        """Let owners report the time that each shard takes, and name the assignor."""
        self.assignor = "load"
        for client_id, member in self.members.items():
            loads = {
                (key, self.shards[key].first_hash): Load(
                    50_000 * size, 100 * size, size
                )
                for key, size in seconds.items()
                if self.shards[key].owner == member.session
            }
            text = stored_loads(loads, member.streams)
            self.members[client_id] = member._replace(load=text)

    def report_rates(self, records_per_second: Mapping[str, float]) -> None:
        """Let owners report an equal part of each stream's rate for each shard."""
        owned = Counter(key.stream_arn for key, row in self.shards.items() if row.owner)
        for client_id, member in self.members.items():
            loads = {
                (key, row.first_hash): Load(
                    0.0, records_per_second[key.stream_arn] / owned[key.stream_arn], 0.0
                )
                for key, row in self.shards.items()
                if row.owner == member.session and key.stream_arn in records_per_second
            }
            self.change(client_id, load=stored_loads(loads, member.streams))

    def settle(self) -> None:
        """Let every client own those of its planned shards that may be claimed."""
        found = self.snapshot()
        for key, row in self.shards.items():
            owner = self.members.get(found.planned.get(key, ""))
            if owner is None or row.ended or not row.ready or found.pause(row):
                self.own(key, None)
            elif row.owner != owner.session:
                self.own(key, owner)

    def own(self, key: ShardKey, owner: MemberRow | None) -> None:
        session, client_id = (owner.session, owner.client_id) if owner else ("", "")
        epoch = self.shards[key].epoch + bool(owner)
        self.change_shard(key, owner=session, owner_id=client_id, epoch=epoch)

    def split(self, key: ShardKey) -> list[ShardKey]:
        """Split a shard, whose children wait until it has ended."""
        row = self.shards[key]
        middle = (row.first_hash + row.last_hash) // 2
        children = []
        for first, last in ((row.first_hash, middle), (middle + 1, row.last_hash)):
            number = sum(known.stream_arn == key.stream_arn for known in self.shards)
            child = ShardKey(key.stream_arn, f"shardId-{number:012d}")
            parents = frozenset({key.shard_id})
            self.shards[child] = ShardRow(
                child, first, last, Start.TRIM_HORIZON, parents
            )
            self.millis[child] = self.millis[key]
            children.append(child)
        return children

    def end(self, key: ShardKey) -> None:
        self.change_shard(key, ended=True, owner="", owner_id="", position=None)
        for child, row in self.shards.items():
            parents = (ShardKey(child.stream_arn, p) for p in row.parents)
            if row.parents and all(self.shards[p].ended for p in parents):
                self.change_shard(child, ready=True)

    def beat(self, *, but: Iterable[str] = ()) -> None:
        """Advance the heartbeats, and the positions of owned shards."""
        for client_id, member in self.members.items():
            if client_id not in but:
                self.members[client_id] = member._replace(beat=member.beat + 1)
        for key, row in self.shards.items():
            if row.owner:
                number = int(row.position.sequence_number) if row.position else 10**20
                at = Position(str(number + 1))
                self.change_shard(key, position=at)

    def snapshot(self) -> Snapshot:
        shards: dict[str, list[ShardRow]] = {arn: [] for arn in self.streams}
        for key, row in sorted(self.shards.items(), key=lambda i: i[1].first_hash):
            shards[key.stream_arn].append(row)
        leads = self.members.get(self.leader)
        return Snapshot(
            list(self.members.values()),
            LeaderRow(leads.session, leads.client_id, 1, 1, self.assignor, 20_000)
            if leads
            else None,
            list(self.streams.values()),
            shards,
            group=self.group,
        )

    async def read(self) -> Snapshot:
        """Return all rows, unless an error is set, once ``answers`` is set."""
        await self.answers.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.snapshot()

    async def read_lags(self, snapshot: Snapshot) -> Lags:
        return Lags(dict(self.millis), {})


class FakeActions:
    """Records actions, and rejects only those on the client "last"."""

    def __init__(self) -> None:
        self.done: list[Action] = []

    async def preview(self, change: Action) -> Preview:
        return Preview([f"it will {type(change).__name__}"], "skips 3 records", True)

    async def apply(self, change: Action) -> str:
        if getattr(change, "client", "") == "last":
            raise ConfigurationError("it is the last\x07 client")
        self.done.append(change)
        return "done"


class FakeRecords:
    """Answers every request with the same records, which it also notes."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.requests: list[RecordsRequest] = []

    async def find(self, request: RecordsRequest) -> dict[str, Any]:
        self.requests.append(request)
        if request.start == "yesterday":
            raise ConfigurationError("from yesterday: give a time")
        found = FoundRecords(list(self.records), 7, 2, Position("99"), "tip")
        return answer(found, with_data=request.with_data)


class CountedFleet(ToyFleet):
    """A fleet that counts how often it is read."""

    reads = 0
    slow = False

    async def read(self) -> Snapshot:
        self.reads += 1
        return await super().read()

    async def read_lags(self, snapshot: Snapshot) -> Lags:
        if self.slow:
            await asyncio.sleep(3600)
        return await super().read_lags(snapshot)
