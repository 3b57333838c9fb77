"""Test writing leases from which a KCL fleet continues where a group has stopped.

A real KCL 3.5.1 has started from such leases against the embedded AWS, in the middle of
an aggregate and with the children of a split: docs/migrating-from-kcl.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Value
from kinesumer.model.streams import Start
from kinesumer.ops.migration.import_plan import ResumePoint, plan_stream
from kinesumer.ops.migration.import_plan import write as write_rows
from kinesumer.ops.migration.kcl_export import ExportPlan, plan_kcl_export
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.support.kcl_fleet import (
    AGGREGATE,
    ORDERS,
    PLAIN,
    S0,
    S1,
    S2,
    S3,
    MemoryLeases,
    World,
    leases,
)

CHILD = "49017952649043560000000000000000000000000000003300000002"


async def consumed(**marks: ResumePoint) -> World:
    world = World()
    ids = {f"_{number}": shard for number, shard in enumerate((S0, S1, S2, S3))}
    found = {ids[name]: mark for name, mark in marks.items()}
    plan = await plan_stream(world.context(), await world.open(ORDERS), found)
    assert not plan.problems
    await write_rows(world.context(), plan)
    return world


async def exported(
    world: World, table: MemoryLeases, *, region: str | None = None
) -> ExportPlan:
    plan = await plan_kcl_export(
        world.context(), world.open, table, ["orders"], region=region
    )
    await plan.write(world.context())
    return plan


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
        f"{AGGREGATE}/4",  # the last record of the aggregate
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
    await exported(world, table, region="us-east-1")
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


async def test_imported_leases_are_exported_unchanged() -> None:
    world = await consumed(
        _0=ResumePoint(Position(AGGREGATE, 2)), _1=ResumePoint(Position(PLAIN))
    )
    table = leases("kclsingle")
    plan = await exported(world, table)
    [stream] = plan.report(written=True)["streams"]
    assert stream["counts"] == {"keep": 2, "create": 2}
    repeated = await exported(world, table)
    assert repeated.report(written=True)["streams"][0]["counts"] == {"keep": 4}
    assert checkpoint(table.rows[S0]) == f"{AGGREGATE}/2"
    assert checkpoint(table.rows[S1]) == f"{PLAIN}/0"


async def test_leases_of_dropped_shards_end_and_do_not_block_their_children() -> None:
    world = await consumed(_2=ResumePoint(), _3=ResumePoint(), _0=ResumePoint())
    del world.kinesis.stream("orders").shards[S1]
    table = leases("kclsingle")
    await exported(world, table)
    assert checkpoint(table.rows[S1]) == "SHARD_END/0"


async def test_a_listing_that_lacks_open_shards_ends_no_leases() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint(ended=True))
    del world.kinesis.stream("orders").shards[S3]
    with pytest.raises(KinesumerError, match="don't cover all hash keys"):
        await exported(world, leases("kclsingle"))


async def change_row(world: World, shard_id: str, **values: Value) -> None:
    stored = world.store.rows(rows.shard_partition("a", ORDERS))
    row = next(row for row in stored if row["sk"].endswith(shard_id))  # type: ignore[union-attr]
    key = Key(str(row["pk"]), str(row["sk"]))
    await world.store.write(Write(key, Compare("pk", "exists"), values))


async def test_an_open_shard_that_is_marked_as_ended_keeps_its_position() -> None:
    world = await consumed(
        _0=ResumePoint(Position(AGGREGATE)), _1=ResumePoint(ended=True)
    )
    await change_row(world, S0, ended=True)
    table = leases("kclsingle")
    await exported(world, table)
    assert checkpoint(table.rows[S0]) == f"{AGGREGATE}/4"


async def test_a_position_past_the_end_of_a_closed_shard_is_exported_as_its_end() -> (
    None
):
    world = await consumed(_0=ResumePoint(), _1=ResumePoint(Position(PLAIN)))
    ending = world.kinesis.stream("orders").shard(S1).shard.ending_sequence_number
    await change_row(world, S1, sequence_number=ending or "")
    table = leases("kclsingle")
    await exported(world, table)
    assert checkpoint(table.rows[S1]) == "SHARD_END/0"
    assert table.rows[S1]["childShardIds"] == {"SS": [S2, S3]}


async def test_a_start_at_a_time_begins_anew_and_is_noted() -> None:
    at = Start(type="AT_TIMESTAMP", timestamp=1795265000.0)
    world = await consumed(_0=ResumePoint(start=at), _1=ResumePoint(Position(PLAIN)))
    table = leases("kclsingle")
    plan = await exported(world, table)
    assert checkpoint(table.rows[S0]) == "TRIM_HORIZON/0"
    [note] = plan.report(written=True)["streams"][0]["notes"]
    assert note.startswith(f"{S0}: nothing was read since its start")


async def test_a_live_fleet_gets_no_positions() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclsingle")
    table.before_scan = [lambda: None, lambda: table.beat(S0)]
    with pytest.raises(GroupBusyError, match="KCL fleet of table kclsingle"):
        await exported(world, table)


async def test_a_lease_that_changes_meanwhile_is_not_overwritten() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclsingle")
    write = table.write

    async def late(change: Any) -> Any:
        table.beat(S1)
        return await write(change)

    table.write = late  # type: ignore[assignment, method-assign]
    with pytest.raises(KinesumerError, match=f"lease {S1} has changed meanwhile"):
        await exported(world, table)


async def test_a_lease_that_changes_after_the_write_is_reported() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclsingle")

    def change() -> None:
        table.rows[S0]["checkpoint"] = {"S": "LATEST"}

    table.before_scan = [lambda: None] * 3 + [change]
    with pytest.raises(KinesumerError, match=f"lease {S0} isn't what was written"):
        await exported(world, table)


async def test_a_stream_that_the_app_does_not_consume_is_refused() -> None:
    world = await consumed(_0=ResumePoint(), _1=ResumePoint())
    table = leases("kclmulti2")
    with pytest.raises(ConfigurationError, match=r"no positions in .*payments"):
        await plan_kcl_export(world.context(), world.open, table, region="us-east-1")
