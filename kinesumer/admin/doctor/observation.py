"""Observe an app's streams for the doctor, twice and some seconds apart."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin import verify
from kinesumer.admin.doctor.permission_probe import Probe
from kinesumer.admin.sampling import ShardSampler
from kinesumer.admin.shard_reads import PacedReader, ServiceClock, for_each_stream
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import ShardKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.lag_trend import ArrivalSample, LagSample
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.admin.verify import Verdict
    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import MemberRow
    from kinesumer.model.streams import Shard, StreamInfo

    LagSamples = Mapping[ShardKey, LagSample]
    Work = Callable[[str, KinesisSource], Awaitable[None]]

READ_INTERVAL_SECONDS = 1.0
"""A client that has caught up reads a shard four times a second; this is the fifth."""


class StreamObservation(NamedTuple):
    """The state of one stream in Kinesis."""

    info: StreamInfo
    listing: Sequence[Shard]
    first: Mapping[ShardKey, LagSample] = {}
    """The lags of open rows at the first observation."""
    second: Mapping[ShardKey, LagSample] = {}
    """The lags of open rows at the second observation."""
    verdicts: Mapping[ShardKey, Verdict] = {}
    """The verdicts on the stored positions of open rows."""
    arriving: Mapping[str, ArrivalSample] = {}
    """The records that arrived lately in open shards, by shard id."""
    throttled: Mapping[str, int] = {}
    """The number of the doctor's throttled reads, by shard id."""


@dataclass(frozen=True, kw_only=True)
class AppObservation:
    """Two snapshots of the rows, some seconds apart, and the streams."""

    app: str
    first: Snapshot
    second: Snapshot
    seconds: float
    """The time between the snapshots."""
    heartbeat_ages: Mapping[str, float] = field(default_factory=dict)
    """For how many seconds each session's heartbeat was seen unchanged."""
    streams: Mapping[str, StreamObservation] = field(default_factory=dict)
    """The readable streams, by ARN."""
    go_clients: Sequence[str] = ()
    """Live clients of Kinesumer for Go under this app."""

    @cached_property
    def clients(self) -> list[MemberRow]:
        """The plain clients that aren't marked dead in the second snapshot."""
        return [m for m in self.second.alive if m.kind == CLIENT]

    @cached_property
    def assignable(self) -> list[MemberRow]:
        """The plain clients that plans can assign shards to."""
        return [m for m in self.clients if not m.drained and m.state == "up"]

    def is_requested(self, arn: str) -> bool:
        """Return whether a live client consumes a stream."""
        return any(arn in member.streams for member in self.second.alive)


class StreamObserver:
    """Reads the readable streams of an app, and collects the errors."""

    def __init__(
        self, clients: ClientFactory, roles: Roles, parse_rows: Collection[str]
    ) -> None:
        self._clients, self._roles, self._readable = clients, roles, parse_rows
        self._reader = PacedReader(READ_INTERVAL_SECONDS)
        self.failed: list[Probe] = []

    async def sample_lags(self, snapshot: Snapshot) -> dict[str, LagSamples]:
        """Return how far the rows' positions are behind, by stream."""
        lags: dict[str, LagSamples] = {}

        async def sample_stream(arn: str, source: KinesisSource) -> None:
            clock = ServiceClock((await source.describe()).now)
            lags[arn] = await self._lags(arn, source, snapshot, clock)

        await self._for_each_stream(snapshot, sample_stream)
        return lags

    async def observe(
        self, snapshot: Snapshot, before: Mapping[str, LagSamples]
    ) -> dict[str, StreamObservation]:
        """Sample the lags again, and read the listing, positions and arrivals."""
        streams: dict[str, StreamObservation] = {}

        async def observe_stream(arn: str, source: KinesisSource) -> None:
            info = await source.describe()
            listing = await source.list_shards()
            clock = ServiceClock(info.now)
            lags = await self._lags(arn, source, snapshot, clock)
            rows = [row for row in snapshot.shards[arn] if not row.ended]
            verdicts = await asyncio.gather(
                *(
                    verify.check_position(self._reader, source, row, listing, info)
                    for row in rows
                )
            )
            open_ids = [shard.shard_id for shard in listing if not shard.closed]
            arrivals = await asyncio.gather(
                *(self._arrivals(ShardKey(arn, i), source, clock) for i in open_ids)
            )
            throttled = self._reader.throttled.items()
            streams[arn] = StreamObservation(
                info,
                listing,
                before.get(arn, {}),
                lags,
                {row.key: verdict for row, verdict in zip(rows, verdicts, strict=True)},
                {
                    i: sample
                    for i, sample in zip(open_ids, arrivals, strict=True)
                    if sample
                },
                {key.shard_id: n for key, n in throttled if key.stream_arn == arn},
            )

        await self._for_each_stream(snapshot, observe_stream)
        return streams

    async def _for_each_stream(self, snapshot: Snapshot, work: Work) -> None:
        arns = [
            stream.arn for stream in snapshot.streams if stream.arn in self._readable
        ]
        errors = await for_each_stream(self._clients, arns, work, self._roles)
        self.failed += [Probe("kinesis", arn, error) for arn, error in errors.items()]

    async def _lags(
        self, arn: str, source: KinesisSource, snapshot: Snapshot, clock: ServiceClock
    ) -> LagSamples:
        rows = [row for row in snapshot.shards[arn] if not row.ended]
        samples = await asyncio.gather(
            *(
                ShardSampler(self._reader, source, row.key, clock).lag(row)
                for row in rows
            )
        )
        return {row.key: sample for row, sample in zip(rows, samples, strict=True)}

    async def _arrivals(
        self, key: ShardKey, source: KinesisSource, clock: ServiceClock
    ) -> ArrivalSample | None:
        try:
            return await ShardSampler(self._reader, source, key, clock).arrivals()
        except SourceUnavailableError:
            return None  # a throttled shard is a finding of its own
