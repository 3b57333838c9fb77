"""Check stream consumers: unused ones, and streams with few places left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.kinesis import open_source
from kinesumer.aws.stream_consumers import (
    MAX_CONSUMERS,
    QUOTA,
    StreamConsumer,
    StreamConsumers,
)
from kinesumer.model.streams import stream_name
from kinesumer.ops.group.fan_out import LiveUses, read_live_uses
from kinesumer.ops.group.problems import FAN_OUT
from kinesumer.runtime.text import first_three

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory
    from kinesumer.ops.group.connect import Roles
    from kinesumer.ops.group.doctor.finding import Finding
    from kinesumer.ops.group.doctor.permission_probe import ProbeLog

# With fewer free places, a deploy of one more app may fail.
FREE_CONSUMERS = 3


class ConsumerObservation(NamedTuple):
    """The registered consumers of streams, by ARN, and who uses them."""

    registered: Mapping[str, Sequence[StreamConsumer]]
    uses: LiveUses
    table: str


async def observe_consumers(
    clients: ClientFactory,
    roles: Roles,
    names: Iterable[str],
    store: DynamoStateStore,
    table: str,
    now: float,
    log: ProbeLog,
) -> ConsumerObservation | None:
    """List the consumers of streams, and read who uses them.

    Returns None if the table can't be read. Streams whose consumers can't be listed are
    left out.
    """

    async def list_consumers(name: str) -> tuple[str, list[StreamConsumer]]:
        source = await open_source(clients, roles.stream(name))
        arn = (await source.describe()).arn
        return arn, await StreamConsumers(source).list()

    lists = (
        log.attempt("kinesis:ListStreamConsumers", name, list_consumers(name))
        for name in names
    )
    found = await asyncio.gather(*lists)
    scan = read_live_uses(store, now)
    uses = await log.attempt("dynamodb:Scan", f"table {table}", scan)
    if uses is None:
        return None
    return ConsumerObservation(dict(filter(None, found)), uses, table)


def unused_consumers(observed: ConsumerObservation) -> Iterator[Finding]:
    """Yield a finding for each stream with consumers that no live client uses."""
    for arn, consumers in observed.registered.items():
        unused = [c.name for c in consumers if not observed.uses.apps(arn, c.name)]
        if unused:
            yield FAN_OUT.note(
                arn,
                f"no live client in table {observed.table} uses the stream consumer "
                f"{first_three(unused)}: AWS bills a registered consumer for each "
                "shard and hour",
                "unless another program uses it: kinesumer fan-out deregister "
                f"{stream_name(arn)} {unused[0]}",
            )


def full_streams(observed: ConsumerObservation) -> Iterator[Finding]:
    """Yield a finding for each stream that can have few further consumers."""
    for arn, consumers in observed.registered.items():
        if len(consumers) > MAX_CONSUMERS - FREE_CONSUMERS:
            yield FAN_OUT.note(
                arn,
                f"{len(consumers)} stream consumers are registered: {QUOTA}",
                "deregister what nobody uses, or raise the quota, before another app "
                "reads the stream by fan-out",
            )
