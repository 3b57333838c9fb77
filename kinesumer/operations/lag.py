"""How far each shard's stored position is behind, as Kinesis tells."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import ShardMissingError, TrimmedPositionError
from kinesumer.operations.asking import Asking, ServiceClock, each_stream
from kinesumer.operations.backlog import behind
from kinesumer.operations.reaching import NO_ROLES, Roles
from kinesumer.tasks import together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import Clients
    from kinesumer.model import ShardKey
    from kinesumer.ports import StreamSource
    from kinesumer.wire.rows import ShardRow


class Lags(NamedTuple):
    """What Kinesis said of streams and shards."""

    millis: dict[ShardKey, int]
    """How far each shard's stored position is behind its tip."""
    problems: dict[str, str]
    """Why a stream couldn't be read, by its ARN."""
    retention_hours: Mapping[str, int] = MappingProxyType({})
    """How long a stream keeps records, by its ARN."""


async def read_lags(
    clients: Clients,
    shards: Mapping[str, Sequence[ShardRow]],
    roles: Roles = NO_ROLES,
) -> Lags:
    """Ask Kinesis for the lag of every shard that hasn't ended.

    A stream that can't be read is a problem of that stream only.
    """
    asking = Asking()
    millis: dict[ShardKey, int] = {}
    retention: dict[str, int] = {}

    async def of_stream(arn: str, source: KinesisSource) -> None:
        info = await source.describe()
        retention[arn] = info.retention_hours
        clock = ServiceClock(info.now)
        rows = [row for row in shards[arn] if not row.ended]
        found = await together(_of_shard(asking, source, r, clock) for r in rows)
        for row, waited in zip(rows, found, strict=True):
            if waited is not None:
                millis[row.key] = waited

    faults = await each_stream(clients, shards, of_stream, roles)
    problems = {arn: str(error) for arn, error in faults.items()}
    return Lags(millis, problems, retention)


async def _of_shard(
    asking: Asking, source: StreamSource, row: ShardRow, clock: ServiceClock
) -> int | None:
    """Read one record after the position; None if Kinesis has none of it any more."""
    after = row.position or row.start
    try:
        return behind(await asking.read(source, row.key, after, 1), clock.now())
    except (ShardMissingError, TrimmedPositionError):
        return None
