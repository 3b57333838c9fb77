"""Who owns the shards of an app, and what arrives in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.errors import KinesumerError
from kinesumer.operations import snapshot
from kinesumer.operations.asking import Asking, ServiceClock, each_stream
from kinesumer.operations.distribution import Client, Held, Spread
from kinesumer.operations.reaching import NO_ROLES, Roles
from kinesumer.operations.sampling import OF_A_SHARD, arriving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import Clients
    from kinesumer.model import ShardKey
    from kinesumer.ports import StateStore
    from kinesumer.wire.rows import MemberRow, ShardRow


async def read_spread(
    clients: Clients,
    store: StateStore,
    app: str,
    roles: Roles = NO_ROLES,
    *,
    throughput: bool = True,
) -> Spread:
    """Read an app's rows; ask Kinesis what arrived in each shard in the last seconds.

    Shards that wait for their parents, or have ended, don't count.
    """
    found = await snapshot.take(store, app)
    if not (found.streams or found.corrupt):
        raise KinesumerError(
            f"the table knows no app {app!r}; check --app, --table and --region"
        )
    rows = {
        arn: [row for row in page if row.ready and not row.ended]
        for arn, page in found.shards.items()
    }
    rates: dict[ShardKey, float] = {}
    problems = list(found.corrupt)
    if throughput:
        problems += await _measure(clients, rows, roles, rates)
    members = [Client(m.client_id, m.label, _weight(m)) for m in found.alive]
    held = [
        Held(row.owner_id if row.owner in found.sessions else "", rates.get(row.key))
        for page in rows.values()
        for row in page
    ]
    return Spread(members, held, problems)


def _weight(member: MemberRow) -> int:
    """Return what a client counts for in plans: nothing where it is to have none."""
    return 0 if member.drained or member.state == "leaving" else member.weight


async def _measure(
    clients: Clients,
    rows: Mapping[str, Sequence[ShardRow]],
    roles: Roles,
    rates: dict[ShardKey, float],
) -> list[str]:
    """Fill in the bytes a second that arrive; return which streams can't be read."""
    asking = Asking()

    async def of_stream(arn: str, source: KinesisSource) -> None:
        clock = ServiceClock((await source.describe()).now)

        async def of_shard(row: ShardRow) -> None:
            try:
                sample = await arriving(asking, source, row.key, clock)
            except OF_A_SHARD:
                return  # unknown: the others are told all the same
            rates[row.key] = sample.bytes_per_second

        await asyncio.gather(*(of_shard(row) for row in rows[arn]))

    faults = await each_stream(clients, rows, of_stream, roles)
    return [f"stream {arn}: throughput unknown: {e}" for arn, e in faults.items()]
