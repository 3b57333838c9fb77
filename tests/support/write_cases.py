"""List the rows that each write accepts or refuses by section 4 of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import (
    Key,
    LeaderRow,
    MemberRow,
    Row,
    ShardRow,
    StreamRow,
    Value,
)
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.memory import MemoryStore
from kinesumer.wire import admin_writes, rows, shard_writes, writes
from kinesumer.wire.rows import read_liveness
from tests.support.clock import StillClock

APP = "app"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
NOW = "2026-11-21T00:00:00.000Z"


def write_over(row: Row | None, write: Write) -> WriteResult:
    store = MemoryStore(StillClock(0.0))
    if row is not None:
        store.restore([row], "table-1")
    return asyncio.run(store.write(write))


def row_after(before: Row | None, write: Write) -> Row:
    row = write_over(before, write).row
    assert row is not None
    return row


MINE = MemberRow(
    "c1",
    "mine",
    incarnation=3,
    beat=5,
    streams=frozenset({ARN}),
    last_update=NOW,
    label="us-east-1a",
)
LEADER = LeaderRow("mine", "c1", leader_epoch=4, plan_version=7)
STREAM = StreamRow(ARN, 1700000000.5, Start.TRIM_HORIZON)
SHARD = ShardRow(
    key=ShardKey(ARN, "shardId-000000000001"),
    first_hash=0,
    last_hash=HASH_KEYS - 1,
    start=Start.TRIM_HORIZON,
    epoch=6,
    owner="mine",
    owner_id="c1",
)


def row_of(key: Key, **attributes: Value) -> Row:
    return {"pk": key.pk, "sk": key.sk, **attributes}


def without(row: Row, *names: str) -> Row:
    return {key: value for key, value in row.items() if key not in names}


MEMBER_ROW = row_of(
    rows.member_key(APP, "c1"),
    session="mine",
    incarnation=3,
    beat=5,
    lease_ms=8000,
    dead=False,
    streams=frozenset({ARN}),
    last_update=NOW,
)
DEAD_ROW = MEMBER_ROW | {"dead": True}
MARKED_ROW = MEMBER_ROW | {"dead": "yes", "incarnation": "?"}
BROKEN_ROW = without(MEMBER_ROW, "beat", "session")
LEADER_ROW = row_of(
    rows.leader_key(APP),
    session="mine",
    client_id="c1",
    leader_epoch=4,
    plan_version=7,
)
SHARD_ROW = row_of(
    rows.shard_key(APP, SHARD.key, 0),
    last_hash=rows.hash_text(HASH_KEYS - 1),
    start="TRIM_HORIZON",
    epoch=6,
    owner="mine",
    owner_id="c1",
    claim="nonce",
    sequence_number="500",
    ended=False,
    ready=True,
)
FREE_ROW = without(SHARD_ROW, "owner", "owner_id")
STREAM_ROW = row_of(
    rows.stream_key(APP, ARN), stream_created_at="1700000000.5", start="TRIM_HORIZON"
)

GROUP_ROW = row_of(rows.group_key(APP), group_id="g", version=1)


class Case(NamedTuple):
    """A write, rows to which it is applied, and rows that make its condition false."""

    write: Write
    accepted: Mapping[str, Row | None]
    refused: Mapping[str, Row | None]


def assignment(epoch: int = 4, version: int = 7) -> Write:
    return writes.assign(
        APP,
        MINE,
        LEADER._replace(leader_epoch=epoch, plan_version=version),
        index=2,
        range_=(Interval(ARN, 0, 9),),
        clients=3,
        syncs=frozenset(),
    )


AT_600 = Position("600")
OWNED_BY_OTHERS: dict[str, Row | None] = {
    "no row": None,
    "another owner": SHARD_ROW | {"owner": "other"},
    "no owner": FREE_ROW,
    "a later epoch": SHARD_ROW | {"epoch": 7},
    "an earlier epoch": SHARD_ROW | {"epoch": 5},
}
NOT_MY_MEMBER: dict[str, Row | None] = {
    "no row": None,
    "another session": MEMBER_ROW | {"session": "other"},
}
NOT_MY_LIVING_MEMBER = NOT_MY_MEMBER | {"dead": DEAD_ROW}
STORED_600 = SHARD_ROW | {"sequence_number": "600"}
STORED_601 = SHARD_ROW | {"sequence_number": "601"}
LAST_WRITES: Mapping[str, Mapping[str, Row | None]] = {
    "accepted": {"an earlier position": SHARD_ROW, "the same position": STORED_600},
    "refused": OWNED_BY_OTHERS | {"a later position": STORED_601},
}
# Writes of operators that are applied to any existing row.
OF_ANY_ROW: dict[str, tuple[Write, Row]] = {
    "pause": (admin_writes.pause(rows.stream_key(APP, ARN), "a deploy"), STREAM_ROW),
    "resume": (admin_writes.resume(rows.stream_key(APP, ARN)), STREAM_ROW),
    "begin a reset": (admin_writes.begin_reset(APP), GROUP_ROW),
    "give a reset up": (admin_writes.give_up_reset(APP), GROUP_ROW),
    "delete": (admin_writes.delete(rows.group_key(APP)), GROUP_ROW),
}
CASES = {
    name: Case(write, {"a row": row}, {"no row": None})
    for name, (write, row) in OF_ANY_ROW.items()
} | {
    "register a new id": Case(
        writes.register(APP, MINE, None, NOW),
        {"no row": None},
        {"a living row": MEMBER_ROW, "a dead row": DEAD_ROW},
    ),
    "register a used id": Case(
        writes.register(APP, MINE, MINE, NOW),
        {"the dead one seen": DEAD_ROW},
        {
            "no row": None,
            "it lives": MEMBER_ROW,
            "a later incarnation": DEAD_ROW | {"incarnation": 4},
        },
    ),
    "register over a mark set by hand": Case(
        writes.register(APP, MINE, read_liveness(MARKED_ROW), NOW),
        {"as it was seen": MARKED_ROW},
        {"no row": None, "marked properly since": DEAD_ROW, "it lives": MEMBER_ROW},
    ),
    "fence a corrupt row": Case(
        writes.fence(APP, read_liveness(BROKEN_ROW), NOW),
        {"as it was seen": BROKEN_ROW},
        {"no row": None, "mended since": MEMBER_ROW, "marked": MARKED_ROW},
    ),
    "prune a row marked by hand": Case(
        writes.prune_member(APP, read_liveness(MARKED_ROW)),
        {"long dead": MARKED_ROW},
        {"marked properly since": DEAD_ROW, "it lives": MEMBER_ROW},
    ),
    "heartbeat": Case(
        writes.heartbeat(APP, MINE, 6, state="up", lease_ms=8000),
        {
            "the beat before": MEMBER_ROW,
            "the same beat": MEMBER_ROW | {"beat": 6},
            "no death mark at all": without(MEMBER_ROW, "dead"),
        },
        NOT_MY_LIVING_MEMBER
        | {
            "a later beat": MEMBER_ROW | {"beat": 7},
            "a beat left out": MEMBER_ROW | {"beat": 4},
        },
    ),
    "ask": Case(
        writes.request_streams(APP, MINE, frozenset({ARN})),
        {"mine": MEMBER_ROW},
        NOT_MY_LIVING_MEMBER,
    ),
    "fence": Case(
        writes.fence(APP, MINE, NOW),
        {"as observed": MEMBER_ROW},
        NOT_MY_LIVING_MEMBER | {"it has beaten": MEMBER_ROW | {"beat": 6}},
    ),
    "leave": Case(
        writes.leave(APP, MINE, NOW),
        {"mine": MEMBER_ROW, "fenced already": DEAD_ROW},
        NOT_MY_MEMBER,
    ),
    "lead first": Case(
        writes.lead(APP, MINE, None),
        {"no leader ever": None},
        {"a leader": LEADER_ROW, "mine": LEADER_ROW | {"session": "mine"}},
    ),
    "lead after a death": Case(
        writes.lead(APP, MINE, LEADER._replace(session="gone")),
        {"the dead one": LEADER_ROW | {"session": "gone"}},
        {"no row": None, "another leads": LEADER_ROW | {"session": "other"}},
    ),
    "publish": Case(
        writes.publish(
            APP, LEADER, 8, assignor="load", rebalance_seconds=20.0, now=1.2345
        ),
        {"still leading": LEADER_ROW, "again": LEADER_ROW | {"plan_version": 8}},
        {
            "no row": None,
            "a later plan": LEADER_ROW | {"plan_version": 9},
            "another leads": LEADER_ROW | {"session": "other"},
            "a later term": LEADER_ROW | {"leader_epoch": 5},
        },
    ),
    "assign": Case(
        assignment(),
        {
            "no plan yet": MEMBER_ROW,
            "an older version": MEMBER_ROW | {"leader_epoch": 4, "plan_version": 6},
            "an older term": MEMBER_ROW | {"leader_epoch": 3, "plan_version": 99},
        },
        NOT_MY_LIVING_MEMBER
        | {
            "the same plan": MEMBER_ROW | {"leader_epoch": 4, "plan_version": 7},
            "a later version": MEMBER_ROW | {"leader_epoch": 4, "plan_version": 8},
            "a later term": MEMBER_ROW | {"leader_epoch": 5, "plan_version": 0},
            "other streams": MEMBER_ROW | {"streams": frozenset({ARN, "arn:x"})},
        },
    ),
    "create group": Case(
        writes.create_group(APP, "g1"),
        {"no row": None},
        {"a group": row_of(rows.group_key(APP), group_id="g0", version=1)},
    ),
    "create stream": Case(
        writes.create_stream(APP, STREAM),
        {"no row": None},
        {"a start resolved": STREAM_ROW},
    ),
    "baseline": Case(
        writes.baseline(APP, STREAM),
        {"the same stream": STREAM_ROW},
        {"no row": None, "recreated": STREAM_ROW | {"stream_created_at": "1.0"}},
    ),
    "create shard": Case(
        shard_writes.create_shard(APP, SHARD), {"no row": None}, {"a row": SHARD_ROW}
    ),
    "ready": Case(
        shard_writes.ready(APP, SHARD),
        {"as it was read": SHARD_ROW},
        {"pruned meanwhile": None, "seeked since": SHARD_ROW | {"epoch": 7}},
    ),
    "claim what is free": Case(
        shard_writes.claim(APP, SHARD, MINE, "n"),
        {"no owner": FREE_ROW},
        {
            "no row": None,
            "not ready": FREE_ROW | {"ready": False},
            "ended": FREE_ROW | {"ended": True},
            "another epoch": FREE_ROW | {"epoch": 7},
            "an owner": FREE_ROW | {"owner": "other"},
            "an owner without a name": FREE_ROW | {"owner": ""},
            "paused": FREE_ROW | {"paused": True},
        },
    ),
    "claim from the dead": Case(
        shard_writes.claim(APP, SHARD, MINE, "n", owner="dead"),
        {"the dead owner": FREE_ROW | {"owner": "dead"}, "given up": FREE_ROW},
        {
            "another owner": FREE_ROW | {"owner": "other"},
            "another epoch": FREE_ROW | {"owner": "dead", "epoch": 7},
        },
    ),
    "commit": Case(
        shard_writes.commit(APP, SHARD, AT_600),
        {
            "an earlier position": SHARD_ROW,
            "no position": without(SHARD_ROW, "sequence_number"),
        },
        OWNED_BY_OTHERS
        | {"the same position": STORED_600, "a later position": STORED_601},
    ),
    "note tip": Case(
        shard_writes.note_tip(APP, SHARD, Tip(0.0, AT_600)),
        {"mine": SHARD_ROW},
        OWNED_BY_OTHERS,
    ),
    "release": Case(shard_writes.release(APP, SHARD, AT_600), **LAST_WRITES),
    "release without progress": Case(
        shard_writes.release(APP, SHARD, None), {"mine": SHARD_ROW}, OWNED_BY_OTHERS
    ),
    "end": Case(shard_writes.mark_ended(APP, SHARD, AT_600), **LAST_WRITES),
    "prune member": Case(
        writes.prune_member(APP, MINE),
        {"long dead": DEAD_ROW},
        {
            "no row": None,
            "alive": MEMBER_ROW,
            "another session": DEAD_ROW | {"session": "other"},
            "another date": DEAD_ROW | {"last_update": "2026-11-21T00:00:01.000Z"},
        },
    ),
    "reopen": Case(
        shard_writes.reopen(APP, SHARD),
        {"ended": FREE_ROW | {"ended": True}},
        {
            "pruned meanwhile": None,
            "reopened before": FREE_ROW,
            "seeked since": FREE_ROW | {"epoch": 7, "ended": True},
        },
    ),
    "prune shard": Case(
        shard_writes.prune_shard(APP, SHARD),
        {"ended": SHARD_ROW | {"ended": True}},
        {"no row": None, "not ended": SHARD_ROW},
    ),
    "notify": Case(
        admin_writes.notify(APP, MINE),
        {"never notified": MEMBER_ROW},
        NOT_MY_LIVING_MEMBER | {"notified meanwhile": MEMBER_ROW | {"notice": 1}},
    ),
    "notify again": Case(
        admin_writes.notify(APP, MINE._replace(notice=4)),
        {"notified before": MEMBER_ROW | {"notice": 4}},
        {"notified meanwhile": MEMBER_ROW | {"notice": 5}},
    ),
    "drain": Case(
        admin_writes.drain(APP, MINE, drained=True),
        {"mine": MEMBER_ROW},
        NOT_MY_LIVING_MEMBER,
    ),
    "seek": Case(
        admin_writes.seek(APP, SHARD, Start.TRIM_HORIZON, waits=False),
        {"owned": SHARD_ROW, "free": FREE_ROW},
        {
            "pruned meanwhile": None,
            "claimed or seeked meanwhile": SHARD_ROW | {"epoch": 7},
            "ended meanwhile": SHARD_ROW | {"ended": True},
        },
    ),
    "claim one's own shard after a seek": Case(
        shard_writes.claim(APP, SHARD, MINE, "n", owner="mine"),
        {"owned and not held": SHARD_ROW, "released meanwhile": FREE_ROW},
        {
            "seeked again": SHARD_ROW | {"epoch": 7},
            "paused": SHARD_ROW | {"paused": True},
            "paused and free": FREE_ROW | {"paused": True},
        },
    ),
}


def after(name: str) -> Row:
    """Return the row that results from a write to the first row that accepts it."""
    case = CASES[name]
    return row_after(next(iter(case.accepted.values())), case.write)
