"""Looks at an app's streams: positions, what arrives, and what Kinesis refuses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.admin import verify
from kinesumer.admin.doctor.observation import StreamObservation
from kinesumer.admin.doctor.permission_probe import Probe
from kinesumer.admin.sampling import sample_arrivals, sample_lag
from kinesumer.admin.shard_reads import PacedReader, ServiceClock, for_each_stream
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import ShardKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.lag_trend import ArrivalSample, LagSample
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import Shard

    Looks = Mapping[ShardKey, LagSample]
    Ask = Callable[[str, KinesisSource], Awaitable[None]]


PACE_SECONDS = 1.0
"""With four reads a second of who has caught up, that makes the five that there are."""


class StreamObserver:
    """The streams that can be read, and what went wrong on the way."""

    def __init__(
        self, clients: ClientFactory, roles: Roles, readable: Collection[str]
    ) -> None:
        self._clients, self._roles, self._readable = clients, roles, readable
        self._asking = PacedReader(PACE_SECONDS)
        self.failed: list[Probe] = []

    async def look(self, found: Snapshot) -> dict[str, Looks]:
        """Return how far the rows' positions are behind, by stream."""
        seen: dict[str, Looks] = {}

        async def of_stream(arn: str, source: KinesisSource) -> None:
            clock = ServiceClock((await source.describe()).now)
            seen[arn] = await self._rows(arn, source, found, clock)

        await self._each(found, of_stream)
        return seen

    async def look_closely(
        self, found: Snapshot, before: Mapping[str, Looks]
    ) -> dict[str, StreamObservation]:
        """Look again, and at the listing and what arrives."""
        seen: dict[str, StreamObservation] = {}

        async def of_stream(arn: str, source: KinesisSource) -> None:
            info = await source.describe()
            listing = await source.list_shards()
            clock = ServiceClock(info.now)
            looks = await self._rows(arn, source, found, clock)
            rows = [row for row in found.shards[arn] if not row.ended]
            verdicts = await asyncio.gather(
                *(
                    verify.check_position(self._asking, source, row, listing, info)
                    for row in rows
                )
            )
            arrived = await asyncio.gather(
                *(
                    self._arriving(arn, source, s, clock)
                    for s in listing
                    if not s.closed
                )
            )
            seen[arn] = StreamObservation(
                info,
                listing,
                before.get(arn, {}),
                looks,
                {row.key: said for row, said in zip(rows, verdicts, strict=True)},
                {shard: sample for shard, sample in arrived if sample is not None},
                {
                    k.shard_id: n
                    for k, n in self._asking.throttled.items()
                    if k[0] == arn
                },
            )

        await self._each(found, of_stream)
        return seen

    async def _each(self, found: Snapshot, ask: Ask) -> None:
        arns = [stream.arn for stream in found.streams if stream.arn in self._readable]
        faults = await for_each_stream(self._clients, arns, ask, self._roles)
        self.failed += [Probe("kinesis", arn, error) for arn, error in faults.items()]

    async def _rows(
        self, arn: str, source: KinesisSource, found: Snapshot, clock: ServiceClock
    ) -> Looks:
        rows = [row for row in found.shards[arn] if not row.ended]
        looks = await asyncio.gather(
            *(sample_lag(self._asking, source, row, clock) for row in rows)
        )
        return {row.key: one for row, one in zip(rows, looks, strict=True)}

    async def _arriving(
        self, arn: str, source: KinesisSource, shard: Shard, clock: ServiceClock
    ) -> tuple[str, ArrivalSample | None]:
        key = ShardKey(arn, shard.shard_id)
        try:
            return shard.shard_id, await sample_arrivals(
                self._asking, source, key, clock
            )
        except SourceUnavailableError:
            return shard.shard_id, None  # too busy: that is a finding by itself
