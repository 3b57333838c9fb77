"""Observe an app's rows and streams for the doctor, twice within some seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import KinesumerError, SourceUnavailableError
from kinesumer.model.rows import CLIENT, MemberRow, ShardRow
from kinesumer.model.streams import Shard, ShardKey, StreamInfo
from kinesumer.ops.group.connect import Roles
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.shard_reads import (
    ArrivalSample,
    LagSample,
    PacedReader,
    ShardSampler,
    for_each_stream,
    gather_by_key,
)
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.verify import Verdict, check_position
from kinesumer.ports import StreamSource


class StreamObservation(NamedTuple):
    """The state of one stream in Kinesis."""

    info: StreamInfo
    listing: Sequence[Shard]
    # The lags of shards that haven't ended, at the first and the second observation.
    first: Mapping[ShardKey, LagSample] = {}
    second: Mapping[ShardKey, LagSample] = {}
    verdicts: Mapping[ShardKey, Verdict] = {}  # whether their positions are valid
    arriving: Mapping[str, ArrivalSample] = {}  # latest records, by open shard's id
    throttled: Mapping[str, int] = {}  # the doctor's throttled reads, by shard id


@dataclass(frozen=True, kw_only=True)
class AppObservation:
    """Two snapshots of an app's rows, some seconds apart, and its streams."""

    app: str
    first: Snapshot
    second: Snapshot
    seconds: float  # the time between the snapshots
    # The seconds for which each session's heartbeat has been unchanged.
    heartbeat_ages: Mapping[str, float] = field(default_factory=dict)
    # The readable streams, by ARN.
    streams: Mapping[str, StreamObservation] = field(default_factory=dict)
    go_clients: Sequence[str] = ()  # live clients of Kinesumer for Go under this app

    @property
    def subject(self) -> str:
        """The subject of findings about the whole app."""
        return f"app {self.app}"

    @cached_property
    def fleet(self) -> FleetView:
        """The members at the second snapshot."""
        return FleetView(self.second, self.heartbeat_ages)

    @cached_property
    def clients(self) -> list[MemberRow]:
        """The clients, without Spark queries, that the second snapshot shows alive."""
        return [m for m in self.second.alive if m.kind == CLIENT]

    def rows(self, arn: str) -> tuple[list[ShardRow], list[ShardRow]]:
        """Return a stream's rows of both snapshots."""
        return self.first.shards.get(arn, []), self.second.shards.get(arn, [])

    def is_requested(self, arn: str) -> bool:
        """Return whether a live client consumes a stream."""
        return any(arn in member.streams for member in self.second.alive)


# The samples of one shard at the first observation. The second is None if Kinesis
# throttled the reads, which another check reports.
FirstSample = tuple[LagSample, ArrivalSample | None]


async def sample_first(sampler: ShardSampler, row: ShardRow) -> FirstSample:
    """Sample a shard's lag, and the records that have just arrived."""
    lag = await sampler.lag(row)
    try:
        return lag, await sampler.arrivals()
    except SourceUnavailableError:
        return lag, None


async def observe_streams(
    clients: ClientFactory,
    roles: Roles,
    snapshot: Snapshot,
    readable: Collection[str],
    first: Mapping[ShardKey, FirstSample],
    reader: PacedReader,
) -> tuple[dict[str, StreamObservation], dict[str, KinesumerError]]:
    """Observe the readable streams. Return the observations, and errors, by ARN."""
    observed: dict[str, StreamObservation] = {}

    async def observe_stream(arn: str, source: StreamSource) -> None:
        info = await source.describe()
        listing = await source.list_shards()
        rows = [row for row in snapshot.shards[arn] if not row.ended]
        samplers = {r.key: ShardSampler(reader, source, r.key, info.now) for r in rows}
        lags = await gather_by_key({r.key: samplers[r.key].lag(r) for r in rows})
        verdicts = await gather_by_key(
            {r.key: check_position(samplers[r.key], r, listing, info) for r in rows}
        )
        open_shards = {ShardKey(arn, s.shard_id) for s in listing if not s.closed}
        before = {k: first[k] for k in sorted(first) if k.stream_arn == arn}
        observed[arn] = StreamObservation(
            info,
            listing,
            {key: lag for key, (lag, _) in before.items()},
            lags,
            verdicts,
            {
                key.shard_id: arriving
                for key, (_, arriving) in before.items()
                if arriving is not None and key in open_shards
            },
            {k.shard_id: n for k, n in reader.throttled.items() if k.stream_arn == arn},
        )

    arns = [stream.arn for stream in snapshot.streams if stream.arn in readable]
    errors = await for_each_stream(clients, arns, observe_stream, roles)
    return observed, errors
