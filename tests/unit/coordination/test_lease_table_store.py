"""Test that rows of shards are leases of a KCL fleet, and all other rows are not."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.coordination.lease_table_store import LeaseTableStore
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    StateStoreMissingError,
    StoreUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, Row, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ports import AllOf, Write, WriteResult
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire import rows, shard_writes, writes
from tests.support.fleet import FAILOVER_SECONDS, Fleet, lease_row
from tests.support.world import APP, ARN

ME = MemberRow("c1", "s1", streams=frozenset({ARN}))
STREAM = StreamRow(ARN, 5.0, Start.LATEST)
PARTITION = rows.shard_partition(APP, ARN)
ALL = {"first": rows.hash_text(0), "last": rows.hash_text(HASH_KEYS - 1) + "/~"}
S0, S1 = "shardId-000000000000", "shardId-000000000001"
SHARD = ShardRow(ShardKey(ARN, S0), 0, HASH_KEYS - 1, Start.TRIM_HORIZON)


@pytest.fixture
def world() -> Fleet:
    return Fleet(VirtualLoop(Random(0)), shards=2)


async def shards(
    store: LeaseTableStore, *, consistent: bool = False
) -> dict[str, ShardRow]:
    """Return the rows of all shards, as a query of the whole range shows them."""
    found = await store.query(PARTITION, consistent=consistent, **ALL)
    return {row.key.shard_id: row for row in map(rows.read_shard, found)}


async def claim(
    store: LeaseTableStore, shard_id: str = S0, member: MemberRow = ME
) -> ShardRow | None:
    """Claim a shard as it was last read; return its row if the claim was applied."""
    row = (await shards(store))[shard_id]
    written = await store.write(shard_writes.claim(APP, row, member, "nonce"))
    return rows.read_shard(written.row) if written.applied and written.row else None


async def renew_for(store: LeaseTableStore, seconds: float) -> None:
    renewing = asyncio.create_task(store.keep_renewing())
    await asyncio.sleep(seconds)
    renewing.cancel()


async def beat(store: LeaseTableStore, member: MemberRow = ME) -> None:
    await store.write(writes.register(APP, member, None, "2026-01-01T00:00:00Z"))


async def test_a_stream_without_leases_is_refused(world: Fleet) -> None:
    for row in world.leases.rows.values():
        row["leaseKey"] = f"123456789012:payments:7:{row['leaseKey']}"
    store, _ = world.store()
    with pytest.raises(ConfigurationError, match=f"no leases of stream {ARN}"):
        await store.write(writes.create_stream(APP, STREAM))


async def test_leases_of_many_streams_are_told_apart(world: Fleet) -> None:
    world.leases.rows = {
        (key := f"123456789012:{name}:7:{S0}"): lease_row(key)
        for name in ("orders", "payments")
    }
    world.leases.rows["c1"] = {"leaseKey": "c1", "entityType": "WORKER_METRIC_STATS"}
    store, _ = world.store()
    assert list(await shards(store)) == [S0]
    assert await claim(store) is not None
    owners = {key.split(":")[1]: owner for key, owner in owners_of(world).items()}
    assert owners == {"orders": "c1", "payments": ""}


def owners_of(world: Fleet) -> dict[str, str]:
    leases = (row for row in world.leases.rows.values() if "checkpoint" in row)
    return {str(row["leaseKey"]): str(row.get("leaseOwner", "")) for row in leases}


async def test_a_lease_that_was_never_read_begins_where_the_app_does(
    world: Fleet,
) -> None:
    world.leases.rows[S0]["checkpoint"] = "LATEST"
    store, _ = world.store()
    assert (await shards(store))[S0].start == Start.TRIM_HORIZON
    start = Start(type="AT_TIMESTAMP", timestamp=5.0)
    await store.write(writes.create_stream(APP, STREAM._replace(start=start)))
    assert (await shards(store))[S0].start == start
    assert (await shards(store))[S1].start == Start.TRIM_HORIZON


async def test_rows_are_those_of_the_last_scan_and_of_own_writes(world: Fleet) -> None:
    store, _ = world.store()
    await shards(store)
    world.leases.rows[S1]["checkpoint"] = "49"
    assert await claim(store) is not None
    found = await shards(store)
    assert (found[S0].owner, found[S1].position) == ("s1", None)
    assert world.leases.scans == 1
    await asyncio.sleep(FAILOVER_SECONDS / 3)
    assert (await shards(store))[S1].position == Position("49", 0)
    world.leases.rows[S1]["checkpoint"] = "50"
    assert (await shards(store, consistent=True))[S1].position == Position("50", 0)
    row = await store.get(rows.shard_key(APP, ShardKey(ARN, S1), HASH_KEYS // 2))
    assert row is not None and row["sequence_number"] == "50"


async def test_calls_at_the_same_time_share_one_scan(world: Fleet) -> None:
    store, _ = world.store()
    await asyncio.gather(shards(store), shards(store), store.verify())
    assert world.leases.scans == 1


async def test_a_query_returns_the_shards_between_its_bounds_in_order(
    world: Fleet,
) -> None:
    store, _ = world.store()
    middle = rows.hash_text(HASH_KEYS // 2)
    low = await store.query(PARTITION, last=middle)
    assert [row["sk"] for row in low] == [f"{rows.hash_text(0)}/{S0}"]
    high = await store.query(PARTITION, first=middle)
    assert [row["sk"] for row in high] == [f"{middle}/{S1}"]
    assert len(await store.query(PARTITION)) == 2


async def test_only_one_of_two_clients_claims_a_shard(world: Fleet) -> None:
    (one, _), (two, _) = world.store("c1"), world.store("c2")
    other = ME._replace(client_id="c2", session="s2")
    await shards(two)
    assert await claim(one) is not None
    assert await claim(two, member=other) is None
    assert owners_of(world)[S0] == "c1"
    # The second client knows the owner now, without a scan.
    assert (await shards(two))[S0].owner == "s1"


async def test_a_refused_write_returns_the_row_as_it_is(world: Fleet) -> None:
    store, _ = world.store()
    mine = await claim(store)
    assert mine is not None
    await store.write(shard_writes.commit(APP, mine, Position("49")))
    again = await store.write(shard_writes.commit(APP, mine, Position("48")))
    assert not again.applied and again.row is not None
    assert rows.read_shard(again.row).position == Position("49")


async def test_a_commit_fails_when_a_worker_has_taken_the_lease(world: Fleet) -> None:
    store, held = world.store()
    lost: list[bool] = []
    held.when_lost(lambda: lost.append(True))
    mine = await claim(store)
    assert mine is not None
    assert held.deadline(mine.key, mine.epoch) == world.clock.now() + 7.5
    row = world.leases.rows[S0]
    row |= {"leaseOwner": "w1", "leaseCounter": 2}
    written = await store.write(shard_writes.commit(APP, mine, Position("49")))
    assert not written.applied and written.row is not None
    assert rows.read_shard(written.row).owner == "kcl:w1"
    assert row["checkpoint"] == "TRIM_HORIZON"
    assert lost == [True]
    assert held.deadline(mine.key, mine.epoch) < 0


async def test_a_release_and_an_end_give_the_lease_up(world: Fleet) -> None:
    store, held = world.store()
    mine = await claim(store)
    assert mine is not None
    assert (await store.write(shard_writes.release(APP, mine, Position("49")))).applied
    assert held.by_key == {}
    again = await claim(store)
    assert again is not None and again.position == Position("49")
    assert (await store.write(shard_writes.mark_ended(APP, again, None))).applied
    assert held.by_key == {}
    assert world.leases.rows[S0]["checkpoint"] == "SHARD_END"


@pytest.mark.parametrize(("clients", "owner"), [(1, "w1"), (2, "")])
async def test_the_last_client_gives_its_leases_to_workers_of_kcl_3(
    world: Fleet, clients: int, owner: str
) -> None:
    world.leases.rows["w1"] = {
        "leaseKey": "w1",
        "entityType": "WORKER_METRIC_STATS",
        "lut": int(world.clock.wall()),
    }
    store, _ = world.store()
    await beat(store)
    plan = Write(rows.member_key(APP, "c1"), AllOf(), {"clients": clients})
    await store.write(plan)
    mine = await claim(store)
    assert mine is not None
    assert (await store.write(shard_writes.release(APP, mine, Position("49")))).applied
    assert world.leases.rows[S0].get("leaseOwner", "") == owner
    assert world.leases.rows[S0]["checkpoint"] == "49"


async def test_the_end_of_a_shard_creates_leases_of_its_children_as_kcl_does(
    world: Fleet,
) -> None:
    store, _ = world.store()
    mine = await claim(store)
    assert mine is not None
    child = mine._replace(
        key=ShardKey(ARN, "shardId-000000000002"),
        parents=frozenset({S0}),
        owner="",
        epoch=0,
        ready=False,
    )
    create = shard_writes.create_shard(APP, child)
    assert (await store.write(create)).applied
    assert not (await store.write(create)).applied
    assert not (await shards(store))[child.key.shard_id].ready
    await store.write(shard_writes.mark_ended(APP, mine, Position("49")))
    parent, lease = world.leases.rows[S0], world.leases.rows[child.key.shard_id]
    assert parent["childShardIds"] == frozenset({child.key.shard_id})
    assert lease["parentShardId"] == frozenset({S0})
    found = (await shards(store))[child.key.shard_id]
    assert found.ready
    # Only the parents' leases tell whether the child is ready.
    before = dict(lease)
    assert (await store.write(shard_writes.ready(APP, found))).applied
    assert lease == before


async def test_the_lease_of_an_ended_shard_is_deleted_when_its_row_is_pruned(
    world: Fleet,
) -> None:
    world.leases.rows[S0]["checkpoint"] = "SHARD_END"
    store, _ = world.store()
    row = (await shards(store))[S0]
    assert (await store.write(shard_writes.prune_shard(APP, row))).applied
    assert [*world.leases.rows] == [S1]
    assert await store.get(shard_writes.shard_row_key(APP, row)) is None
    assert not (await store.write(shard_writes.prune_shard(APP, row))).applied


async def test_leases_without_hash_keys_only_tell_whether_they_have_ended(
    world: Fleet,
) -> None:
    del world.leases.rows[S0]["endingHashKey"]
    store, _ = world.store()
    assert list(await shards(store)) == [S1]
    row = await store.get(rows.shard_key(APP, ShardKey(ARN, S0), 0))
    assert row is not None and not rows.read_shard(row).ended


async def test_shard_sync_adds_hash_keys_that_a_lease_lacks(world: Fleet) -> None:
    del world.leases.rows[S0]["endingHashKey"]
    store, _ = world.store()
    await shards(store)
    last = HASH_KEYS // 2 - 1
    written = await store.write(
        shard_writes.create_shard(APP, SHARD._replace(last_hash=last))
    )
    assert not written.applied
    # The counter stays, so that the lease's owner keeps it.
    assert world.leases.rows[S0] == lease_row(S0, endingHashKey=str(last))
    assert list(await shards(store)) == [S0, S1]


# --- leases of others ---


async def test_a_worker_s_lease_is_free_after_the_failover_time(world: Fleet) -> None:
    world.leases.rows[S0] |= {"leaseOwner": "w1", "leaseCounter": 5}
    world.leases.rows[S1] |= {"leaseOwner": "w2", "leaseCounter": 5}
    store, _ = world.store()
    for count in range(10):
        assert (await shards(store))[S0].owner == "kcl:w1"
        await asyncio.sleep(1)
        world.leases.rows[S1]["leaseCounter"] = 6 + count
    found = await shards(store)
    assert (found[S0].owner, found[S1].owner) == ("", "kcl:w2")
    mine = await claim(store)
    assert mine is not None and mine.epoch == 1
    assert world.leases.rows[S0]["ownerSwitchesSinceCheckpoint"] == 1


async def test_a_lease_that_a_worker_has_renewed_since_is_not_claimed(
    world: Fleet,
) -> None:
    world.leases.rows[S0] |= {"leaseOwner": "w1", "leaseCounter": 5}
    store, _ = world.store()
    reading = asyncio.create_task(store.keep_renewing())
    await shards(store)
    await asyncio.sleep(FAILOVER_SECONDS + 2)
    row = (await shards(store))[S0]
    reading.cancel()
    assert row.owner == ""
    world.leases.rows[S0]["leaseCounter"] = 6
    written = await store.write(shard_writes.claim(APP, row, ME, "nonce"))
    assert not written.applied and written.row is not None
    assert rows.read_shard(written.row).owner == "kcl:w1"


async def test_a_child_is_not_claimed_before_a_parent_that_the_scan_missed(
    world: Fleet,
) -> None:
    world.leases.rows[S1]["parentShardId"] = frozenset({S0})
    parent = world.leases.rows.pop(S0)
    store, _ = world.store()
    assert (await shards(store))[S1].ready
    world.leases.rows[S0] = parent
    assert await claim(store, S1) is None
    assert not (await shards(store))[S1].ready
    parent["checkpoint"] = "SHARD_END"
    await shards(store, consistent=True)
    assert await claim(store, S1) is not None


async def test_leases_are_read_once_a_second_while_workers_have_some(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    world.leases.rows[S0] |= {"leaseOwner": "w1", "leaseCounter": 5}
    store, _ = world.store()
    await beat(store)
    await shards(store)
    reading = asyncio.create_task(store.keep_renewing())
    await asyncio.sleep(5.5)
    assert 5 <= world.leases.scans <= 6
    world.leases.scan_errors = [StoreUnavailableError("slow")] * 2
    await asyncio.sleep(3.5)
    assert caplog.text.count("can't read") == 1
    assert not world.leases.scan_errors
    world.leases.rows[S0] |= {"checkpoint": "SHARD_END", "leaseCounter": 6}
    del world.leases.rows[S1]
    await asyncio.sleep(2)
    scans = world.leases.scans
    await asyncio.sleep(5)
    assert world.leases.scans == scans
    reading.cancel()


async def test_no_row_shows_a_worker_s_lease_as_free_beyond_the_share(
    world: Fleet,
) -> None:
    store, _ = world.store()
    for number in range(2, 6):
        shard_id = f"shardId-{number:012}"
        world.leases.rows[shard_id] = lease_row(shard_id, leaseOwner="w1")
    assert await claim(store, S0) is not None
    assert await claim(store, S1) is not None
    for row in world.leases.rows.values():
        if row.get("leaseOwner") == "w1":
            row["leaseCounter"] = 9
    await asyncio.sleep(FAILOVER_SECONDS / 3)
    owners = [row.owner for row in (await shards(store)).values()]
    assert owners.count("s1") == 2
    assert owners.count("") == 1  # the share is three of six
    assert owners.count("kcl:w1") == 3


# --- renewals ---


async def test_a_lease_is_renewed_while_the_session_sends_heartbeats(
    world: Fleet,
) -> None:
    store, held = world.store()
    await beat(store)
    mine = await claim(store)
    assert mine is not None
    renewing = asyncio.create_task(store.keep_renewing())
    await asyncio.sleep(7.9)  # the lease of the session is 8 s
    counter = world.leases.rows[S0]["leaseCounter"]
    assert isinstance(counter, int) and 3 <= counter <= 5
    assert held.deadline(mine.key, mine.epoch) > world.clock.now() + 4
    await asyncio.sleep(30)
    assert world.leases.rows[S0]["leaseCounter"] == counter
    assert held.deadline(mine.key, mine.epoch) < world.clock.now()
    renewing.cancel()


async def test_a_lease_counts_from_when_its_write_was_sent(
    world: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, held = world.store()
    await beat(store)
    write, sent = world.leases.write, list[float]()

    async def write_slowly(change: Write) -> WriteResult:
        sent.append(world.clock.now())
        written = await write(change)
        await asyncio.sleep(2)
        return written

    monkeypatch.setattr(world.leases, "write", write_slowly)
    row = await claim(store, S0)
    assert row is not None
    assert held.deadline(row.key, 1) == sent[0] + 7.5
    await renew_for(store, 3)
    assert len(sent) == 2
    assert held.deadline(row.key, 1) == sent[1] + 7.5


async def test_the_next_renewal_follows_one_that_failed(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    store, held = world.store()
    await beat(store)
    mine = await claim(store)
    assert mine is not None
    world.leases.errors = [AccessDeniedError("dynamodb:UpdateItem", "table leases")]
    world.leases.late_errors = [StoreUnavailableError("slow")]  # applied without answer
    await renew_for(store, 6)
    assert caplog.text.count("can't renew lease") == 2
    assert held.deadline(mine.key, mine.epoch) > world.clock.now() + 5


async def test_a_claim_without_an_answer_is_found_and_renewed_before_use(
    world: Fleet,
) -> None:
    store, held = world.store()
    await beat(store)
    row = (await shards(store))[S0]
    claim_ = shard_writes.claim(APP, row, ME, "nonce")
    world.leases.late_errors = [StoreUnavailableError("slow")]
    with pytest.raises(StoreUnavailableError):
        await store.write(claim_)
    again = await store.write(claim_)
    assert not again.applied and again.row is not None
    assert again.row["claim"] == "nonce"
    now = world.clock.now()
    assert -float("inf") < held.deadline(row.key, 1) < now
    await renew_for(store, 0.1)
    assert held.deadline(row.key, 1) > now + 5


async def test_a_lease_that_is_deleted_or_taken_is_lost_at_the_next_scan(
    world: Fleet,
) -> None:
    store, held = world.store()
    assert await claim(store, S0) is not None
    assert await claim(store, S1) is not None
    del world.leases.rows[S0]
    world.leases.rows[S1] |= {"leaseOwner": "w1", "leaseCounter": 7}
    await asyncio.sleep(1)
    await store.query(PARTITION, consistent=True)
    assert held.by_key == {}


async def test_a_lease_that_the_leader_takes_back_is_handed_over(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    store, held = world.store()
    await beat(store)
    mine = await claim(store)
    assert mine is not None
    renewing = asyncio.create_task(store.keep_renewing())
    asked: Row = {"leaseOwner": "w1", "checkpointOwner": "c1", "leaseCounter": 9}
    world.leases.rows[S0] |= asked
    await shards(store, consistent=True)
    assert held.by_key == {}
    assert f"worker w1 took the lease of {S0}" in caplog.text
    world.leases.errors = [StoreUnavailableError("slow")]
    await asyncio.sleep(3)
    renewing.cancel()
    row = world.leases.rows[S0]
    assert (row["leaseOwner"], row["leaseCounter"]) == ("w1", 10)
    assert "checkpointOwner" not in row
    assert caplog.text.count("can't hand lease") == 1
    assert (await shards(store))[S0].owner == "kcl:w1"


async def test_a_renewal_of_a_lease_that_is_gone_loses_it(world: Fleet) -> None:
    store, held = world.store()
    await beat(store)
    assert await claim(store, S0) is not None
    del world.leases.rows[S0]
    await renew_for(store, 4)
    assert held.by_key == {}


async def test_errors_of_the_own_table_are_passed_on(world: Fleet) -> None:
    world.table.delete_table()
    with pytest.raises(StateStoreMissingError):
        await world.store()[0].verify()
