"""Rows of the state store survive the way there and back, or say what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import CorruptRowError
from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import (
    GroupRow,
    LeaderRow,
    MemberRow,
    ShardRow,
    StreamRow,
    UnsupportedValue,
)
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.model.rows import Row, Value

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
TIP_AT = 1795219200.25
OTHER = "arn:aws:kinesis:us-east-1:210987654321:stream/orders"

MEMBER: Row = {
    "pk": "member#app",
    "sk": "client-1",
    "session": "s1",
    "incarnation": 2,
    "beat": 7,
    "lease_ms": 8000,
    "weight": 3,
    "label": "us-east-1a",
    "state": "leaving",
    "dead": True,
    "streams": frozenset({ARN, OTHER}),
    "index": 1,
    "range": "0:0-7f,1:80-",
    "keeps": frozenset({OTHER}),
    "clients": 4,
    "leader_epoch": 5,
    "plan_version": 6,
    "last_update": "2026-11-21T00:00:00.000Z",
}
SHARD: Row = {
    "pk": f"shard#app#{ARN}",
    "sk": f"{16:032x}/shardId-000000000001",
    "last_hash": f"{31:032x}",
    "start": "AT_TIMESTAMP 1.5",
    "parents": frozenset({"shardId-000000000000"}),
    "epoch": 3,
    "owner": "s1",
    "owner_id": "client-1",
    "claim": "nonce",
    "sequence_number": "49",
    "sub_sequence_number": 2,
    "ended": True,
    "ready": True,
    "tip": "2026-11-21T00:00:00.250Z 49:2",
}
LEADER: Row = {
    "pk": "leader#app",
    "sk": "leader",
    "session": "s1",
    "client_id": "client-1",
    "leader_epoch": 2,
    "plan_version": 9,
}
STREAM: Row = {
    "pk": "group#app",
    "sk": f"stream#{ARN}",
    "stream_created_at": "1700000000.25",
    "start": "LATEST",
    "baseline": True,
}


def test_a_member_row_is_read_in_full() -> None:
    assert rows.read_member(MEMBER) == MemberRow(
        client_id="client-1",
        session="s1",
        incarnation=2,
        beat=7,
        lease_ms=8000,
        weight=3,
        label="us-east-1a",
        state="leaving",
        dead=True,
        streams=frozenset({ARN, OTHER}),
        index=1,
        range=(Interval(ARN, 0, 0x7F), Interval(OTHER, 0x80, HASH_KEYS - 1)),
        syncs=frozenset({OTHER}),
        clients=4,
        leader_epoch=5,
        plan_version=6,
        last_update="2026-11-21T00:00:00.000Z",
    )
    assert rows.read_member(MEMBER).plan == (5, 6)


def test_a_member_without_a_plan_has_no_range_and_no_index() -> None:
    names = ("pk", "sk", "session", "incarnation", "beat", "lease_ms")
    member = rows.read_member({name: MEMBER[name] for name in names})
    assert member.range is None
    assert member.index is None
    assert not member.dead


def test_a_member_that_gets_nothing_has_an_empty_range() -> None:
    assert rows.read_member(MEMBER | {"range": ""}).range == ()


def test_a_shard_row_is_read_in_full() -> None:
    assert rows.read_shard(SHARD) == ShardRow(
        key=ShardKey(ARN, "shardId-000000000001"),
        first_hash=16,
        last_hash=31,
        start=Start(type="AT_TIMESTAMP", timestamp=1.5),
        parents=frozenset({"shardId-000000000000"}),
        epoch=3,
        owner="s1",
        owner_id="client-1",
        claim="nonce",
        position=Position("49", 2),
        ended=True,
        ready=True,
        tip=Tip(TIP_AT, Position("49", 2)),
    )


@pytest.mark.parametrize("position", [Position("49"), Position("49", 3)])
def test_a_tip_is_written_as_it_is_read(position: Position) -> None:
    text = rows.tip_text(Tip(TIP_AT + 0.0009, position))
    assert rows.read_shard(SHARD | {"tip": text}).tip == Tip(TIP_AT, position)


@pytest.mark.parametrize(
    "tip",
    [
        7,
        "",
        "49",
        "2026-11-21T00:00:00.250Z",
        "2026-11-21T00:00:00.250 49",
        "2026-11-21T00:00:00.250Z x",
        "2026-13-21T00:00:00.250Z 49",
        "1969-11-21T00:00:00.250Z 49",
        "2026-11-21T00:00:00.250Z 49:2:3",
    ],
)
def test_a_tip_that_cannot_be_read_is_none(tip: Value) -> None:
    row = rows.read_shard(SHARD | {"tip": tip})
    assert row.tip is None
    assert row.read_until == 0.0


@pytest.mark.parametrize(
    ("position", "read_until"),
    [
        (None, 0.0),
        (Position("49", 1), 0.0),
        (Position("49", 2), 1795219200.25),
        (Position("50"), 1795219200.25),
    ],
)
def test_a_tip_tells_up_to_when_all_is_read_unless_a_seek_went_back(
    position: Position | None, read_until: float
) -> None:
    row = rows.read_shard(SHARD)._replace(position=position)
    assert row.read_until == read_until


def test_a_shard_row_without_a_checkpoint_has_no_position() -> None:
    row = {k: v for k, v in SHARD.items() if k != "sequence_number"}
    assert rows.read_shard(row).position is None


def test_a_checkpoint_without_a_sub_sequence_number_covers_the_whole_record() -> None:
    row = {k: v for k, v in SHARD.items() if k != "sub_sequence_number"}
    assert rows.read_shard(row).position == Position("49")


def test_leader_and_stream_rows_are_read_in_full() -> None:
    assert rows.read_leader(LEADER) == LeaderRow("s1", "client-1", 2, 9)
    expected = StreamRow(ARN, 1700000000.25, Start.LATEST, baseline=True)
    assert rows.read_stream(STREAM) == expected


READERS: dict[str, tuple[Callable[[Row], object], Row]] = {
    "member": (rows.read_member, MEMBER),
    "shard": (rows.read_shard, SHARD),
    "leader": (rows.read_leader, LEADER),
    "stream": (rows.read_stream, STREAM),
}
HOSTILE: list[tuple[str, str, Value]] = [
    ("member", "sk", 1),
    ("member", "session", 1),
    ("member", "incarnation", "2"),
    ("member", "beat", True),
    ("member", "lease_ms", "8000"),
    ("member", "weight", "3"),
    ("member", "label", 3),
    ("member", "state", 1),
    ("member", "dead", 1),
    ("member", "streams", ARN),
    ("member", "index", "1"),
    ("member", "range", 1),
    ("member", "range", "nonsense"),
    ("member", "range", "2:0-7f"),
    ("member", "range", "-1:0-7f"),
    ("member", "range", "0:7f-0"),
    ("member", "range", f"0:0-{HASH_KEYS:x}"),
    ("member", "range", "0:-5-7f"),
    ("member", "keeps", OTHER),
    ("member", "clients", "4"),
    ("member", "leader_epoch", "5"),
    ("member", "plan_version", "6"),
    ("member", "last_update", 1),
    ("shard", "pk", 1),
    ("shard", "sk", f"{16:032x}"),
    ("shard", "sk", "no hash/shardId-000000000001"),
    ("shard", "last_hash", 31),
    ("shard", "last_hash", "no hash"),
    ("shard", "start", "EVERYWHERE"),
    ("shard", "start", "AT_TIMESTAMP"),
    ("shard", "start", "AT_TIMESTAMP now"),
    ("shard", "start", "AT_TIMESTAMP nan"),
    ("shard", "start", "LATEST 5.0"),
    ("shard", "start", "TRIM_HORIZON 5.0"),
    ("shard", "parents", "shardId-000000000000"),
    ("shard", "epoch", "3"),
    ("shard", "owner", 1),
    ("shard", "owner_id", 1),
    ("shard", "claim", 1),
    ("shard", "sequence_number", 49),
    ("shard", "sequence_number", "4٩"),
    ("shard", "sequence_number", ""),
    ("shard", "sequence_number", "LATEST"),
    ("shard", "sub_sequence_number", "2"),
    ("shard", "ended", "true"),
    ("shard", "ready", 0),
    ("leader", "session", 1),
    ("leader", "client_id", 1),
    ("leader", "leader_epoch", "2"),
    ("leader", "plan_version", "9"),
    ("stream", "sk", 1),
    ("stream", "stream_created_at", 1700000000),
    ("stream", "stream_created_at", "yesterday"),
    ("stream", "stream_created_at", "nan"),
    ("stream", "start", ""),
    ("stream", "baseline", "true"),
    ("member", "incarnation", -1),
    ("member", "lease_ms", 0),
    ("member", "lease_ms", 10**12),
    ("member", "weight", 0),
    ("member", "clients", 10**9),
    ("member", "beat", UnsupportedValue('{"N": "1.5"}')),
    ("shard", "sk", "0/shardId-1"),
    ("shard", "sk", f"{'F' * 32}/shardId-1"),
    ("shard", "sk", f"{'0' * 32}/"),
    ("shard", "sk", f"{'0' * 32}/no shard"),
    ("shard", "last_hash", "ff"),
    ("shard", "epoch", -1),
    ("shard", "epoch", UnsupportedValue('{"NULL": true}')),
    ("shard", "parents", UnsupportedValue('{"L": []}')),
    ("shard", "sequence_number", "1" * 130),
    ("shard", "sequence_number", UnsupportedValue('{"NULL": true}')),
    ("shard", "sub_sequence_number", -1),
    ("shard", "start", "AT_TIMESTAMP 1e300"),
    ("shard", "start", "AT_TIMESTAMP -1"),
    ("leader", "leader_epoch", -1),
    ("stream", "stream_created_at", "1e300"),
]


@pytest.mark.parametrize(("kind", "attribute", "value"), HOSTILE)
def test_an_unreadable_attribute_is_named_with_its_row(
    kind: str, attribute: str, value: Value
) -> None:
    read, row = READERS[kind]
    hostile = row | {attribute: value}
    with pytest.raises(CorruptRowError) as caught:
        read(hostile)
    message = str(caught.value)
    assert f"pk={hostile['pk']!r}" in message
    assert f"sk={hostile['sk']!r}" in message
    assert f"attribute {attribute} " in message
    assert "can't be read" in message
    assert len(message) < 1000


def test_a_shard_that_ends_before_it_begins_is_refused() -> None:
    row = SHARD | {"sk": f"{'f' * 32}/shardId-1", "last_hash": "0" * 32}
    with pytest.raises(CorruptRowError, match="attribute last_hash"):
        rows.read_shard(row)


def test_an_endless_value_is_cut_off_in_the_message() -> None:
    with pytest.raises(CorruptRowError) as caught:
        rows.read_shard(SHARD | {"start": "x" * 400_000})
    assert len(str(caught.value)) < 1000


def test_a_row_that_can_be_read_tells_the_same_of_life() -> None:
    member, pulse = rows.read_member(MEMBER), rows.read_liveness(MEMBER)
    for name in ("client_id", "session", "beat", "incarnation", "lease_ms", "state"):
        assert getattr(member, name) == getattr(pulse, name)
    assert (member.dead, member.dead_value) == (pulse.dead, pulse.dead_value)


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [
        ("member", "session"),
        ("member", "incarnation"),
        ("member", "beat"),
        ("member", "lease_ms"),
        ("shard", "last_hash"),
        ("shard", "start"),
        ("leader", "session"),
        ("leader", "client_id"),
        ("leader", "leader_epoch"),
        ("stream", "stream_created_at"),
        ("stream", "start"),
    ],
)
def test_a_missing_attribute_is_named(kind: str, attribute: str) -> None:
    read, row = READERS[kind]
    with pytest.raises(CorruptRowError, match=f"attribute {attribute} is missing"):
        read({name: value for name, value in row.items() if name != attribute})


texts = st.text(max_size=12) | st.sampled_from(
    ["LATEST", "AT_TIMESTAMP 1", "0:0-", "0/x", "1e999", "-1", "0"]
)
values = st.one_of(
    texts, st.integers(), st.booleans(), st.frozensets(texts, min_size=1, max_size=3)
)


@given(
    st.sampled_from(sorted(READERS)),
    st.dictionaries(st.sampled_from(sorted(MEMBER | SHARD | LEADER | STREAM)), values),
)
def test_whatever_stands_in_a_row_is_read_or_refused_as_corrupt(
    kind: str, changes: Row
) -> None:
    read, row = READERS[kind]
    try:
        read(row | changes)
    except CorruptRowError as error:
        assert "attribute" in str(error)


GROUP: Row = {"pk": "group#app", "sk": "group", "group_id": "g1", "version": 1}


@pytest.mark.parametrize(
    ("attribute", "value"), [("version", 2), ("version", "1"), ("group_id", 1)]
)
def test_a_group_of_another_version_is_refused(attribute: str, value: Value) -> None:
    assert rows.read_group(GROUP).group_id == "g1"
    with pytest.raises(CorruptRowError, match=f"attribute {attribute} {value!r}"):
        rows.read_group(GROUP | {attribute: value})


@given(st.dictionaries(st.sampled_from(sorted(MEMBER)), values))
def test_a_members_life_can_be_told_from_any_row(changes: Row) -> None:
    row = MEMBER | changes | {"sk": "c1"}
    pulse = rows.read_liveness(row)
    assert (pulse.client_id, pulse.session, pulse.beat, pulse.incarnation) == (
        "c1",
        row["session"],
        row["beat"],
        row["incarnation"],
    )
    assert 0 < pulse.lease_ms <= rows.MAX_LEASE_MS
    assert pulse.dead is (row.get("dead", False) is not False)


def test_rows_that_cant_be_read_are_told_apart_from_the_others() -> None:
    sound: Row = {"pk": "group#app", "sk": "group", "group_id": "g", "version": 1}
    odd: Row = {"pk": "group#app", "sk": "odd", "group_id": 7}
    said, wrong = rows.parse_rows(rows.read_group, [odd, sound])
    assert said == [GroupRow("g")]
    assert [sk for sk, _ in wrong] == ["odd"]
    assert "attribute group_id" in str(wrong[0][1])
