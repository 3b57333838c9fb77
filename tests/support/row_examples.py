"""Rows with all their attributes, and examples of every write."""

from __future__ import annotations

from collections.abc import Callable

from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import QUERY, AppRow, Deaths, Row
from kinesumer.model.streams import FanOutUse, Start
from kinesumer.ports import Write
from kinesumer.wire import admin_writes, rows, shard_writes, writes
from tests.support import row_samples
from tests.support.write_cases import (
    APP,
    ARN,
    CASES,
    LEADER,
    MEMBER_ROW,
    MINE,
    NOW,
    SHARD,
    SHARD_ROW,
    STREAM,
)

FULL_SHARD_ROW = row_samples.SHARD | {
    "deaths": 2,
    "died_at": 1_700_000_000_125,
    "tried": "50:3",
    "notes": 4,
    "suspect": "50",
    "poison": "51",
    "paused": True,
    "pause_reason": "repairs",
}
APP_ROW: Row = {
    "pk": rows.APPS,
    "sk": APP,
    "streams": frozenset({ARN}),
    "updated_at": 1_700_000_000_125,
}
READERS: dict[str, tuple[Callable[[Row], object], Row]] = {
    "member": (rows.read_member, MEMBER_ROW),
    "member with all attributes": (
        rows.read_member,
        row_samples.MEMBER
        | {"commit_ms": 3000, "notice": 2, "drained": True, "kind": QUERY},
    ),
    "liveness": (rows.read_liveness, MEMBER_ROW),
    "shard": (rows.read_shard, SHARD_ROW),
    "shard with all attributes": (rows.read_shard, FULL_SHARD_ROW),
    "leader": (rows.read_leader, row_samples.LEADER),
    "stream": (rows.read_stream, row_samples.STREAM | {"paused": True}),
    "group": (rows.read_group, row_samples.GROUP | {"paused": True, "resetting": True}),
    "app": (rows.read_app, APP_ROW),
}
KEY = shard_writes.shard_row_key(APP, SHARD)
DIED = Deaths(2, 1_700_000_000.125, None, Position("50"), Position("51"))
# Writes with all attributes that a write may have, in addition to ``CASES``.
FULL_WRITES: dict[str, Write] = {
    "register with all options": writes.register(
        APP,
        MINE._replace(
            max_shards=9,
            commit_ms=3000,
            drained=True,
            fan_out={ARN: FanOutUse("billing", "it is throttled")},
        ),
        None,
        NOW,
    ),
    "register a query": writes.register(APP, MINE._replace(kind=QUERY), None, NOW),
    "heartbeat with reports": writes.heartbeat(
        APP,
        MINE,
        6,
        state="up",
        lease_ms=8000,
        moment=NOW,
        reports={"load": "1 0:1|AAA", "incidents": "", "failures": "some"},
    ),
    "assign with streams to sync": writes.assign(
        APP, MINE, LEADER, index=0, range_=(), clients=1, syncs=frozenset({ARN})
    ),
    "announce": writes.announce(APP, frozenset({ARN}), None, 1_700_000_000.125),
    "announce again": writes.announce(
        APP, frozenset({ARN}), AppRow(APP, frozenset({ARN}), 1_600_000_000.5), 1.7e9
    ),
    "create a child": shard_writes.create_shard(
        APP,
        SHARD._replace(
            parents=frozenset({"shardId-000000000000"}),
            start=Start(type="AT_TIMESTAMP", timestamp=1_700_000_000.25),
            position=Position("49", 2),
            ready=False,
        ),
    ),
    "claim and count deaths": shard_writes.with_deaths(
        shard_writes.claim(APP, SHARD, MINE, "n", owner="dead"), DIED
    ),
    "note a record": shard_writes.note_tried(KEY, SHARD, Position("50", 3), 4),
    "note that no record is tried": shard_writes.note_tried(KEY, SHARD, None, 5),
    "forget deaths": shard_writes.forget_deaths(KEY, SHARD),
    "commit within an aggregate": shard_writes.commit(
        APP, SHARD, Position("600", 3), Tip(1_700_000_000.25, Position("601"))
    ),
    "release within an aggregate": shard_writes.release(APP, SHARD, Position("600", 3)),
    "end a drain": admin_writes.drain(APP, MINE, drained=False),
    "withdraw a stream": admin_writes.withdraw(APP, STREAM),
    "replace a shard": admin_writes.replace(
        APP, SHARD._replace(position=Position("49", 2)), SHARD._replace(paused=True)
    ),
    "seek to a position": admin_writes.seek(APP, SHARD, Position("49", 2), waits=True),
}
WRITES = FULL_WRITES | {name: case.write for name, case in CASES.items()}
