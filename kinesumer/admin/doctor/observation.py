"""What a doctor has seen of an app: all findings are made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.rows import CLIENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.admin.lag_trend import ArrivalSample, LagSample
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.admin.verify import Verdict
    from kinesumer.model.rows import MemberRow
    from kinesumer.model.streams import Shard, ShardKey, StreamInfo


class StreamObservation(NamedTuple):
    """What Kinesis said of one stream."""

    info: StreamInfo
    listing: Sequence[Shard]
    first: Mapping[ShardKey, LagSample] = {}
    """Open rows' positions at the first look …"""
    second: Mapping[ShardKey, LagSample] = {}
    """… and at the second."""
    verdicts: Mapping[ShardKey, Verdict] = {}
    """What stands at the stored positions of open rows."""
    arriving: Mapping[str, ArrivalSample] = {}
    """What came into open shards lately, by shard id."""
    throttled: Mapping[str, int] = {}
    """How many of the doctor's own reads were refused as too many, by shard id."""


@dataclass(frozen=True, kw_only=True)
class AppObservation:
    """Two looks at the rows, some seconds apart, and one at the streams."""

    app: str
    first: Snapshot
    second: Snapshot
    seconds: float
    """How far the looks lie apart."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """For how long each session's heartbeat was seen unchanged."""
    streams: Mapping[str, StreamObservation] = field(default_factory=dict)
    """By ARN; a stream that couldn't be read is missing."""
    go_clients: Sequence[str] = ()
    """Clients of Kinesumer for Go that live under this app."""

    @cached_property
    def clients(self) -> list[MemberRow]:
        """The plain clients that aren't marked dead, at the second look."""
        return [m for m in self.second.alive if m.kind == CLIENT]

    @cached_property
    def takers(self) -> list[MemberRow]:
        """The plain clients that shards can be planned for."""
        return [m for m in self.clients if not m.drained and m.state == "up"]

    def asked_for(self, arn: str) -> bool:
        """Tell whether somebody who lives asks for a stream."""
        return any(arn in member.streams for member in self.second.alive)
