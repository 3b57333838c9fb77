"""Test that rows are read as written, and that errors name an invalid attribute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.config import MAX_LEASE_SECONDS
from kinesumer.errors import CorruptRowError
from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import (
    GroupRow,
    LeaderRow,
    LivenessRow,
    MemberRow,
    Row,
    ShardRow,
    StreamRow,
    Value,
)
from kinesumer.model.streams import HASH_KEYS, FanOutUse, Interval, ShardKey, Start
from kinesumer.wire import rows
from tests.support.row_samples import (
    ARN,
    GROUP,
    LEADER,
    MEMBER,
    MEMBER_STREAMS,
    OTHER,
    READERS,
    SHARD,
    STREAM,
    TIP_AT,
)


def test_a_member_row_is_read_in_full() -> None:
    assert rows.read_member(MEMBER) == MemberRow(
        client_id="client-1",
        session="s1",
        incarnation=2,
        beat=7,
        lease_ms=8000,
        weight=3,
        label="us-east-1a",
        max_shards=20,
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


def only(row: Row, *names: str, **changes: Value) -> Row:
    """Return a row's key and named attributes, and the changed attributes."""
    return {name: row[name] for name in ("pk", "sk", *names)} | changes


def test_attributes_that_a_row_lacks_have_the_values_of_a_new_row() -> None:
    row = only(MEMBER, "session", incarnation=0, beat=0, lease_ms=8000)
    assert rows.read_member(row) == MemberRow("client-1", "s1")
    assert rows.read_member(row).plan == (0, 0)
    key = ShardKey(ARN, "shardId-000000000001")
    assert rows.read_shard(only(SHARD, "last_hash", start="LATEST")) == ShardRow(
        key, 16, 31, Start.LATEST
    )
    row = only(LEADER, "session", "client_id", "leader_epoch")
    assert rows.read_leader(row) == LeaderRow("s1", "client-1", 2)
    row = only(STREAM, "stream_created_at", "start")
    assert rows.read_stream(row) == StreamRow(ARN, 1700000000.25, Start.LATEST)
    assert rows.read_group(only(GROUP, "group_id")) == GroupRow("g1")


def test_the_use_of_fan_out_is_read_as_it_was_written() -> None:
    uses = {ARN: FanOutUse("billing"), OTHER: FanOutUse("b.2", "access denied: 0:x")}
    text = rows.fan_out_text(uses | {"arn:else": FanOutUse("x")}, MEMBER_STREAMS)
    assert text == "0:billing\n1:b.2 access denied: 0:x"
    assert rows.read_member(MEMBER | {"fan_out": text}).fan_out == uses
    assert rows.read_member(MEMBER).fan_out == {}


def test_a_long_problem_of_fan_out_is_one_short_line() -> None:
    uses = {ARN: FanOutUse("billing", "denied\n" + 200 * "x")}
    [line] = rows.fan_out_text(uses, MEMBER_STREAMS).splitlines()
    assert line.startswith("0:billing denied xxx")
    assert len(line) == len("0:billing ") + MAX_ERROR_LETTERS


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


@pytest.mark.parametrize(
    ("position", "read_until"),
    [
        (None, 0.0),
        (Position("49", 1), 0.0),
        (Position("49", 2), 1795219200.25),
        (Position("50"), 1795219200.25),
    ],
)
def test_a_tip_proves_when_all_was_read_unless_a_seek_went_back(
    position: Position | None, read_until: float
) -> None:
    row = rows.read_shard(SHARD)._replace(position=position)
    assert row.read_until == read_until


def test_leader_and_stream_rows_are_read_in_full() -> None:
    assert rows.read_leader(LEADER) == LeaderRow(
        "s1", "client-1", 2, 9, "load", 20_000, 1_790_000_000.25
    )
    expected = StreamRow(ARN, 1700000000.25, Start.LATEST, baseline=True)
    assert rows.read_stream(STREAM) == expected


def test_both_readers_of_a_member_agree_on_liveness() -> None:
    member, liveness = rows.read_member(MEMBER), rows.read_liveness(MEMBER)
    for name in (*LivenessRow._fields, "dead"):
        assert getattr(member, name) == getattr(liveness, name)
    for lease_ms, expected in ((1, 1), (86_400_001, 60_000), (0, 60_000)):
        assert rows.read_liveness(MEMBER | {"lease_ms": lease_ms}).lease_ms == expected


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("member", ["session", "incarnation", "beat", "lease_ms"]),
        ("shard", ["last_hash", "start"]),
        ("leader", ["session", "client_id", "leader_epoch"]),
        ("stream", ["stream_created_at", "start"]),
    ],
)
def test_a_missing_attribute_is_named(kind: str, attributes: list[str]) -> None:
    read, row = READERS[kind]
    for missing in attributes:
        with pytest.raises(CorruptRowError, match=f"attribute {missing} is missing"):
            read({name: value for name, value in row.items() if name != missing})


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
def test_any_row_is_read_or_refused_as_corrupt(kind: str, changes: Row) -> None:
    read, row = READERS[kind]
    try:
        read(row | changes)
    except CorruptRowError as error:
        assert "attribute" in str(error)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("version", 0), ("version", 2), ("version", "1"), ("group_id", 1)],
)
def test_a_group_of_another_version_is_refused(attribute: str, value: Value) -> None:
    with pytest.raises(CorruptRowError, match=f"attribute {attribute} {value!r}"):
        rows.read_group(GROUP | {attribute: value})


@given(st.dictionaries(st.sampled_from(sorted(MEMBER)), values))
def test_liveness_is_read_from_any_row(changes: Row) -> None:
    row = MEMBER | changes | {"sk": "c1"}
    member = rows.read_liveness(row)
    assert member.client_id == "c1"
    for name in ("session", "beat", "incarnation"):
        assert getattr(member, name) == row[name]
    assert 0 < member.lease_ms <= 1000 * MAX_LEASE_SECONDS
    assert member.dead is (row.get("dead", False) is not False)


def test_corrupt_rows_are_returned_beside_the_others() -> None:
    corrupt = GROUP | {"sk": "odd", "group_id": 7}
    values, errors = rows.parse_rows(rows.read_group, [corrupt, GROUP])
    assert values == [GroupRow("g1")]
    assert [sk for sk, _ in errors] == ["odd"]
    assert "attribute group_id" in str(errors[0][1])


def test_the_row_of_a_group_in_a_kcl_fleet_can_be_read_only_as_a_plain_one() -> None:
    plain: Row = {"pk": "group#a", "sk": "group", "group_id": "g", "version": 1}
    assert rows.plain_group(plain) == plain
    row = plain | {"version": 2, "kcl_table": "leases"}
    with pytest.raises(CorruptRowError, match="lease table leases of a KCL fleet"):
        rows.read_group(row)
    assert rows.plain_group(row) == plain
    assert rows.plain_group(plain | {"kcl_cut_over": "leases"}) == plain
