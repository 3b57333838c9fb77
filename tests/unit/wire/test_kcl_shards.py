"""Test that a KCL lease and a shard's row say the same."""

from __future__ import annotations

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, MemberRow, Row, ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ports import Write
from kinesumer.wire import kcl_shards, rows, shard_writes
from kinesumer.wire.conditions import applied, holds
from kinesumer.wire.kcl_leases import StreamId
from kinesumer.wire.kcl_shards import View, shard_values
from tests.support.fleet import MemoryLeaseTable, lease_row

APP, ARN = "a", "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SHARD_ID = "shardId-000000000001"
SHARD = ShardRow(ShardKey(ARN, SHARD_ID), 0, HASH_KEYS - 1, Start.TRIM_HORIZON)
KEY = rows.shard_key(APP, SHARD.key, 0)
LAST = rows.hash_text(HASH_KEYS - 1)
ME = MemberRow("client", "session")
FREE = View(APP, "AT_TIMESTAMP 5.0", ready=True, is_free=True)
ORDERS = StreamId("123456789012", "orders", 7)


def read(row: Row, view: View = FREE) -> ShardRow:
    return rows.read_shard(shard_values(row, KEY, LAST, view))


def after(
    row: Row, write: Write, children: tuple[str, ...] = (), heir: str | None = None
) -> Row:
    """Return a lease after a write to its shard's row, which must apply."""
    before = shard_values(row, KEY, LAST, FREE)
    assert holds(write.condition, before)
    new = applied(write, before)
    assert new is not None
    change = kcl_shards.change(row, APP, before, new, children, heir)
    assert change is not None
    table = MemoryLeaseTable()
    table.rows[SHARD_ID] = row
    written = table.write_now(change)
    assert written.applied and written.row is not None
    assert rows.read_shard(new)[:-1] == read(written.row)[:-1]
    return written.row


def claimed(row: Row) -> Row:
    return after(row, shard_writes.claim(APP, read(row), ME, "nonce"))


@pytest.mark.parametrize(
    ("checkpoint", "sub", "position", "start"),
    [
        ("TRIM_HORIZON", 0, None, Start.TRIM_HORIZON),
        ("LATEST", 0, None, Start(type="AT_TIMESTAMP", timestamp=5.0)),
        ("AT_TIMESTAMP", 0, None, Start(type="AT_TIMESTAMP", timestamp=5.0)),
        ("49", 0, Position("49", 0), Start.TRIM_HORIZON),
        ("49", 3, Position("49", 3), Start.TRIM_HORIZON),
    ],
)
def test_a_checkpoint_is_a_position_or_a_start(
    checkpoint: str, sub: int, position: Position | None, start: Start
) -> None:
    row = lease_row(SHARD_ID, checkpoint=checkpoint, checkpointSubSequenceNumber=sub)
    found = read(row)
    assert (found.position, found.start, found.ended) == (position, start, False)


def test_shard_end_parents_and_hash_keys_are_those_of_the_lease() -> None:
    parents = frozenset({"shardId-000000000000"})
    row = lease_row(SHARD_ID, checkpoint="SHARD_END", parentShardId=parents)
    found = read(row, FREE._replace(ready=False))
    assert (found.ended, found.parents, found.ready) == (True, parents, False)
    assert kcl_shards.hash_keys_of(row) == (0, HASH_KEYS - 1)
    assert kcl_shards.parents_of({"parentShardId": "s"}) == {"s"}
    assert kcl_shards.hash_keys_of(lease_row(SHARD_ID, endingHashKey="x")) is None


def test_a_claim_makes_the_client_the_lease_owner() -> None:
    row = claimed(lease_row(SHARD_ID, leaseCounter=4))
    assert row["leaseOwner"] == "client"
    assert row["leaseCounter"] == 5
    found = read(row)
    assert (found.owner, found.owner_id, found.epoch) == ("session", "client", 1)
    assert found.claim == "nonce"


def test_a_claim_of_a_worker_s_lease_counts_a_switch() -> None:
    row = lease_row(SHARD_ID, leaseOwner="w", checkpointOwner="v")
    taken = claimed(row)
    assert taken["ownerSwitchesSinceCheckpoint"] == 1
    assert "checkpointOwner" not in taken
    assert kcl_shards.holder_of(row) == "v"
    again = lease_row(SHARD_ID, leaseOwner="w", ownerSwitchesSinceCheckpoint="x")
    assert claimed(again)["ownerSwitchesSinceCheckpoint"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"leaseCounter": 2},  # renewed or taken by a KCL worker
        {"leaseOwner": "w"},  # a graceful hand-over keeps the counter
        {"checkpointOwner": "w"},
        {"kinesumer_app": "b"},
    ],
)
def test_what_others_change_voids_the_owner_but_not_the_epoch(change: Row) -> None:
    row = claimed(lease_row(SHARD_ID)) | change
    found = read(row, FREE._replace(is_free=False))
    assert found.is_foreign
    assert found.owner == f"kcl:{found.owner_id}" and found.owner_id
    assert (found.epoch, found.claim) == (1, "")
    free = read(row)
    assert (free.owner, free.is_foreign, free.epoch) == ("", False, 1)


@pytest.mark.parametrize("position", [Position("49"), Position("49", 3)])
def test_a_commit_is_a_checkpoint_that_reads_back_as_it_was(position: Position) -> None:
    row = claimed(
        lease_row(SHARD_ID, pendingCheckpoint="48", ownerSwitchesSinceCheckpoint=2)
    )
    row = after(row, shard_writes.commit(APP, read(row), position))
    assert row["checkpoint"] == "49"
    sub = position.sub_sequence_number
    assert row["checkpointSubSequenceNumber"] == (2**31 - 1 if sub is None else sub)
    assert row["ownerSwitchesSinceCheckpoint"] == 0
    assert "pendingCheckpoint" not in row
    assert read(row).position == position


def test_a_release_removes_the_owner_and_keeps_the_position() -> None:
    row = claimed(lease_row(SHARD_ID))
    row = after(row, shard_writes.release(APP, read(row), Position("49")))
    assert "leaseOwner" not in row
    found = read(row)
    assert (found.owner, found.position, found.epoch) == ("", Position("49"), 1)


def test_a_lease_that_is_given_up_is_assigned_to_its_heir_unless_it_has_ended() -> None:
    row = claimed(lease_row(SHARD_ID))
    given = after(row, shard_writes.release(APP, read(row), Position("49")), heir="w1")
    assert (given["leaseOwner"], given["leaseCounter"]) == ("w1", 2)
    assert given["checkpoint"] == "49"
    assert not kcl_shards.is_held(given, APP)
    ended = after(row, shard_writes.mark_ended(APP, read(row), None), heir="w1")
    assert "leaseOwner" not in ended


def test_a_hand_over_leaves_the_lease_to_its_next_owner() -> None:
    row = lease_row(SHARD_ID, leaseOwner="w1", checkpointOwner="c1", leaseCounter=4)
    table = MemoryLeaseTable()
    table.rows[SHARD_ID] = row
    handed = table.write_now(kcl_shards.hand_over(row)).row
    assert handed is not None and "checkpointOwner" not in handed
    assert (handed["leaseOwner"], handed["leaseCounter"]) == ("w1", 5)
    assert not table.write_now(kcl_shards.hand_over(row)).applied


def test_an_end_is_shard_end_with_the_children() -> None:
    row = claimed(lease_row(SHARD_ID))
    row = after(
        row, shard_writes.mark_ended(APP, read(row), Position("49")), ("c1", "c2")
    )
    assert row["checkpoint"] == "SHARD_END"
    assert row["childShardIds"] == frozenset({"c1", "c2"})
    assert "leaseOwner" not in row
    found = read(row)
    assert found.ended and found.position == Position("49")


def test_an_end_that_is_taken_back_leaves_the_position() -> None:
    row = claimed(lease_row(SHARD_ID))
    row = after(row, shard_writes.mark_ended(APP, read(row), Position("49", 2)))
    row = after(row, shard_writes.reopen(APP, read(row)))
    assert (row["checkpoint"], row["checkpointSubSequenceNumber"]) == ("49", 2)
    unread = claimed(lease_row(SHARD_ID))
    unread = after(unread, shard_writes.mark_ended(APP, read(unread), None))
    unread = after(unread, shard_writes.reopen(APP, read(unread)))
    assert unread["checkpoint"] == "TRIM_HORIZON"


def test_what_a_lease_has_no_place_for_is_stored_beside_it() -> None:
    row = claimed(lease_row(SHARD_ID))
    note = shard_writes.note_tried(KEY, read(row), Position("49"), 1)
    row = after(row, note)
    assert row["kinesumer_tried"] == "49"
    row = after(row, shard_writes.note_tried(KEY, read(row), None, 2))
    assert "kinesumer_tried" not in row


def test_a_change_of_what_other_leases_tell_writes_nothing() -> None:
    row = lease_row(SHARD_ID, leaseOwner="w")
    before = shard_values(row, KEY, LAST, FREE._replace(ready=False))
    assert kcl_shards.change(row, APP, before, before | {"ready": True}, ()) is None


def test_a_renewal_leaves_the_owner_valid() -> None:
    row = claimed(lease_row(SHARD_ID))
    table = MemoryLeaseTable()
    table.rows[SHARD_ID] = row
    renewed = table.write_now(kcl_shards.renewal(row)).row
    assert renewed is not None and renewed["leaseCounter"] == 2
    assert read(renewed) == read(row)
    assert not table.write_now(kcl_shards.renewal(row)).applied


def test_a_mark_of_a_move_takes_the_lease_from_its_owner() -> None:
    row = claimed(lease_row(SHARD_ID))
    table = MemoryLeaseTable()
    table.rows[SHARD_ID] = row
    moved = table.write_now(kcl_shards.move(row, out=True)).row
    assert moved is not None and moved["kinesumer_moved"] is True
    assert "leaseOwner" not in moved
    assert not table.write_now(kcl_shards.renewal(row)).applied
    back = table.write_now(kcl_shards.move(moved, out=False)).row
    assert back is not None and "kinesumer_moved" not in back
    assert back["leaseCounter"] == 3


@pytest.mark.parametrize("change", ["leaseCounter", "leaseOwner", "checkpointOwner"])
def test_a_write_does_not_apply_to_a_lease_that_has_changed(change: str) -> None:
    row = claimed(lease_row(SHARD_ID))
    value: int | str = 9 if change == "leaseCounter" else "w"
    assert not holds(kcl_shards.unchanged(row), row | {change: value})
    assert not holds(kcl_shards.unchanged(row), None)


@pytest.mark.parametrize("stream", [None, ORDERS])
def test_a_new_lease_is_one_that_kcl_would_create(stream: StreamId | None) -> None:
    shard = SHARD._replace(first_hash=16, parents=frozenset({"p1", "p2"}))
    row = applied(shard_writes.create_shard(APP, shard), None)
    assert row is not None
    write = kcl_shards.new_lease(row, stream, SHARD_ID, has_types=stream is not None)
    key = f"123456789012:orders:7:{SHARD_ID}" if stream else SHARD_ID
    assert write.key == Key(key, "")
    expected = lease_row(
        key, startingHashKey="16", parentShardId=frozenset({"p1", "p2"})
    )
    if stream:
        expected |= {"entityType": "LEASE", "streamName": str(ORDERS)}
        expected["shardId"] = SHARD_ID
    assert {"leaseKey": key, **write.set} == expected
    assert holds(write.condition, None) and not holds(write.condition, expected)


def test_a_new_lease_of_a_shard_with_a_position_has_a_checkpoint() -> None:
    shard = SHARD._replace(position=Position("49", 1))
    row = applied(shard_writes.create_shard(APP, shard), None)
    assert row is not None
    write = kcl_shards.new_lease(row, None, SHARD_ID, has_types=False)
    assert (write.set["checkpoint"], write.set["checkpointSubSequenceNumber"]) == (
        "49",
        1,
    )
    assert "parentShardId" not in write.set


def test_a_row_that_is_no_lease_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="checkpoint isn't that of a lease"):
        read(lease_row(SHARD_ID, checkpoint="soon"))
