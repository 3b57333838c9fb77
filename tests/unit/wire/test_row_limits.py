"""What rows may leave out, and the largest and smallest that may stand in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import CorruptRowError
from kinesumer.model.rows import LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.model.rows import Row, Value

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
MEMBER: Row = {
    "pk": "member#app",
    "sk": "c1",
    "session": "s1",
    "incarnation": 0,
    "beat": 0,
    "lease_ms": 8000,
}
SHARD: Row = {
    "pk": f"shard#app#{ARN}",
    "sk": f"{0:032x}/shardId-1",
    "last_hash": f"{9:032x}",
    "start": "LATEST",
}
LEADER: Row = {
    "pk": "leader#app",
    "sk": "leader",
    "session": "s1",
    "client_id": "c1",
    "leader_epoch": 1,
}
STREAM: Row = {
    "pk": "group#app",
    "sk": f"stream#{ARN}",
    "stream_created_at": "1.5",
    "start": "LATEST",
}
READERS: dict[str, tuple[Callable[[Row], object], Row]] = {
    "member": (rows.read_member, MEMBER),
    "shard": (rows.read_shard, SHARD),
    "stream": (rows.read_stream, STREAM),
}


def test_a_new_members_row_is_one_that_says_nothing_else() -> None:
    new = MemberRow("c1", "s1")
    assert (new.incarnation, new.beat, new.lease_ms) == (0, 0, 8000)
    assert (new.weight, new.clients, new.plan) == (1, 1, (0, 0))
    assert rows.read_member(MEMBER) == new


def test_a_new_shards_row_is_neither_ready_nor_ended() -> None:
    new = ShardRow(ShardKey(ARN, "shardId-1"), 0, 9, Start.LATEST)
    assert (new.epoch, new.ended, new.ready) == (0, False, False)
    assert rows.read_shard(SHARD) == new


def test_a_leader_begins_with_no_plan() -> None:
    assert LeaderRow("s1", "c1", 1).plan_version == 0
    assert rows.read_leader(LEADER) == LeaderRow("s1", "c1", 1)


def test_a_new_streams_row_is_no_baseline() -> None:
    assert not StreamRow(ARN, 1.5, Start.LATEST).baseline
    assert rows.read_stream(STREAM) == StreamRow(ARN, 1.5, Start.LATEST)


def test_a_group_that_tells_no_version_is_of_the_first() -> None:
    assert (
        rows.read_group({"pk": "group#app", "sk": "group", "group_id": "g"}).group_id
        == "g"
    )


LIMITS: list[tuple[str, str, Value, Value]] = [
    ("member", "beat", 10**18, 10**18 + 1),
    ("member", "lease_ms", 86_400_000, 86_400_001),
    ("member", "lease_ms", 1, 0),
    ("member", "weight", 1, 0),
    ("member", "clients", 1_000_000, 1_000_001),
    ("member", "clients", 1, 0),
    ("member", "incarnation", 0, -1),
    ("shard", "last_hash", f"{0:032x}", f"{-1:032x}"),
    ("shard", "sequence_number", "9" * 129, "9" * 130),
    ("shard", "sub_sequence_number", 0, -1),
    ("stream", "stream_created_at", "0", "-0.001"),
    ("stream", "stream_created_at", "253402300799", "253402300800"),
]


@pytest.mark.parametrize(("kind", "attribute", "last", "beyond"), LIMITS)
def test_the_last_that_is_taken_and_the_first_that_is_not(
    kind: str, attribute: str, last: Value, beyond: Value
) -> None:
    read, row = READERS[kind]
    number: Row = {"sequence_number": "1"} if kind == "shard" else {}
    read(row | number | {attribute: last})
    with pytest.raises(CorruptRowError, match=f"attribute {attribute} "):
        read(row | number | {attribute: beyond})


def test_a_group_of_a_version_before_the_first_is_refused() -> None:
    row: Row = {"pk": "group#app", "sk": "group", "group_id": "g", "version": 0}
    with pytest.raises(CorruptRowError, match="version 0 can't be read"):
        rows.read_group(row)


@pytest.mark.parametrize(
    ("lease_ms", "seen"),
    [(1, 1), (86_400_000, 86_400_000), (86_400_001, 60_000), (0, 60_000)],
)
def test_a_lease_that_nobody_can_mean_is_taken_for_a_long_one(
    lease_ms: int, seen: int
) -> None:
    assert rows.read_liveness(MEMBER | {"lease_ms": lease_ms}).lease_ms == seen


def test_a_range_is_written_short() -> None:
    last = HASH_KEYS - 1
    parts = (Interval(ARN, 0, 15), Interval(ARN, 16, last - 1), Interval(ARN, 0, last))
    text = rows.range_text(parts, frozenset({ARN}))
    assert text == f"0:0-f,0:10-{last - 1:x},0:0-"


@pytest.mark.parametrize("last", [HASH_KEYS, HASH_KEYS + 1])
def test_a_range_ends_within_the_hash_space(last: int) -> None:
    row = MEMBER | {"streams": frozenset({ARN}), "range": f"0:0-{last:x}"}
    with pytest.raises(CorruptRowError, match="attribute range"):
        rows.read_member(row)
