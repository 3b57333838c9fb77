"""Leases written back, so that a KCL fleet goes on where a group has stopped.

That a real KCL 3.5.1 starts from such rows, in the middle of an aggregate and with the
children of a split, was tried against the embedded AWS: docs/migrating-from-kcl.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import (
    ConfigurationError,
    GroupBusyError,
    KinesumerError,
)
from kinesumer.migration.apply import write as write_rows
from kinesumer.migration.kcl_export import ExportPlan, LeaseExport
from kinesumer.migration.plan import ResumePoint, plan_stream
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from tests.unit.migration.fleet import (
    ORDERS,
    S0,
    S1,
    S2,
    S3,
    MemoryLeases,
    World,
    leases,
)

AGGREGATE = "49017952649043560000000000000000000000000000002300000000"
PLAIN = "49017952649043560000000000000000000000000000002200000001"
CHILD = "49017952649043560000000000000000000000000000003300000002"


async def consumed(**marks: ResumePoint) -> World:
    """Return a world in which app "a" has read so far: ``_0`` is the first shard."""
    world = World()
    ids = {f"_{number}": shard for number, shard in enumerate((S0, S1, S2, S3))}
    found = {ids[name]: mark for name, mark in marks.items()}
    drafted = await plan_stream(world.context(), await world.open(ORDERS), found)
    assert not drafted.problems
    await write_rows(world.context(), drafted.stream_changes)
    return world


async def exported(world: World, table: MemoryLeases) -> ExportPlan:
    export = LeaseExport(table, ["orders"], "us-east-1")
    handover = await export.draft(world.context(), world.open)
    await handover.write(world.context())
    return handover


def checkpoint(row: dict[str, Any]) -> str:
    return f"{row['checkpoint']['S']}/{row['checkpointSubSequenceNumber']['N']}"


async def test_leases_get_positions_and_lose_their_owners() -> None:
    world = await consumed(
        _0=ResumePoint(Position(AGGREGATE)),
        _1=ResumePoint(ended=True),
        _2=ResumePoint(Position(CHILD)),
        _3=ResumePoint(),
    )
    more: dict[str, Any] = {
        "checkpointOwner": {"S": "worker-2"},
        "pendingCheckpoint": {"S": PLAIN},
        "pendingCheckpointSubSequenceNumber": {"N": "0"},
        "pendingCheckpointState": {"B": "c3RhdGU="},
    }
    table = leases("kclsingle", **{f"_{S1}": more})
    before = {key: dict(row) for key, row in table.rows.items()}
    await exported(world, table)
    rows = table.rows
    assert [checkpoint(rows[shard]) for shard in (S0, S1, S2, S3)] == [
        f"{AGGREGATE}/4",  # its last part
        "SHARD_END/0",
        f"{CHILD}/0",
        "TRIM_HORIZON/0",
    ]
    assert rows[S1]["childShardIds"] == {"SS": [S2, S3]}
    counter = int(before[S0]["leaseCounter"]["N"])
    assert rows[S0]["leaseCounter"] == {"N": str(counter + 1)}
    assert not (set(rows[S1]) & {*more, "leaseOwner"})
    kept = {"startingHashKey", "endingHashKey", "entityType", "throughputKBps"}
    assert {name: rows[S0][name] for name in kept} == {
        name: before[S0][name] for name in kept
    }
    assert rows["worker-1"] == before["worker-1"]


async def test_leases_of_new_shards_are_whole() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint(ended=True))
    table = leases("kclmulti2")
    for shard in (S2, S3):
        del table.rows[f"000000000000:orders:1795264904:{shard}"]
    await exported(world, table)
    assert table.rows[f"000000000000:orders:1795264904:{S2}"] == {
        "leaseKey": {"S": f"000000000000:orders:1795264904:{S2}"},
        "leaseCounter": {"N": "0"},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "startingHashKey": {"S": str(1 << 127)},
        "endingHashKey": {"S": "255211775190703847597530955573826158591"},
        "parentShardId": {"SS": [S1]},
        "entityType": {"S": "LEASE"},
        "streamName": {"S": "000000000000:orders:1795264904"},
        "shardId": {"S": S2},
    }


async def test_what_was_imported_goes_back_as_it_came() -> None:
    world = await consumed(
        _0=ResumePoint(Position(AGGREGATE, 2)), _1=ResumePoint(Position(PLAIN))
    )
    table = leases("kclsingle")
    handover = await exported(world, table)
    [stream] = handover.report(written=True)["streams"]
    assert stream["counts"] == {"keep": 2, "create": 2}
    assert checkpoint(table.rows[S0]) == f"{AGGREGATE}/2"
    assert checkpoint(table.rows[S1]) == f"{PLAIN}/0"


async def test_it_may_be_repeated() -> None:
    world = await consumed(
        _0=ResumePoint(Position(AGGREGATE, 2)), _1=ResumePoint(Position(PLAIN))
    )
    table = leases("kclsingle")
    await exported(world, table)
    handover = await exported(world, table)
    [stream] = handover.report(written=True)["streams"]
    assert stream["counts"] == {"keep": 4}


async def test_leases_of_shards_that_kinesis_has_forgotten_hold_nobody_up() -> None:
    world = await consumed(_2=ResumePoint(), _3=ResumePoint(), _0=ResumePoint())
    for shard in (S1,):
        del world.kinesis.stream("orders").shards[shard]
    table = leases("kclsingle")
    await exported(world, table)
    assert checkpoint(table.rows[S1]) == "SHARD_END/0"


async def test_a_start_at_a_time_begins_anew_and_is_noted() -> None:
    at = Start(type="AT_TIMESTAMP", timestamp=1795265000.0)
    world = await consumed(_0=ResumePoint(start=at), _1=ResumePoint(Position(PLAIN)))
    table = leases("kclsingle")
    handover = await exported(world, table)
    assert checkpoint(table.rows[S0]) == "TRIM_HORIZON/0"
    [note] = handover.report(written=True)["streams"][0]["notes"]
    assert note.startswith(f"{S0}: nothing was read since its start")


async def test_a_fleet_that_lives_gets_nothing() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclsingle")
    table.before_scan = [lambda: None, lambda: table.beat(S0)]
    with pytest.raises(GroupBusyError, match="KCL fleet of table kclsingle"):
        await exported(world, table)


async def test_a_lease_that_somebody_takes_meanwhile_is_not_overwritten() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclsingle")
    write = table.write

    async def late(change: Any) -> bool:
        table.beat(S1)
        return await write(change)

    table.write = late  # type: ignore[assignment, method-assign]
    with pytest.raises(KinesumerError, match=f"lease {S1} has changed meanwhile"):
        await exported(world, table)


async def test_what_is_not_there_after_it_is_told() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclsingle")

    def change() -> None:
        table.rows[S0]["checkpoint"] = {"S": "LATEST"}

    table.before_scan = [lambda: None] * 3 + [change]
    with pytest.raises(KinesumerError, match=f"lease {S0} isn't what was written"):
        await exported(world, table)


async def test_a_stream_that_the_app_does_not_consume_is_refused() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    export = LeaseExport(leases("kclmulti2"), [], "us-east-1")
    with pytest.raises(ConfigurationError, match=r"no positions in .*payments"):
        await export.draft(world.context(), world.open)
