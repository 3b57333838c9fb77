"""The report of ``status``: its JSON, and its tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinesumer.admin.lag import Lags
from kinesumer.admin.snapshot import Snapshot
from kinesumer.admin.status import report
from kinesumer.model.positions import Position
from kinesumer.model.rows import (
    GroupRow,
    LeaderRow,
    MemberRow,
    ShardRow,
    StreamRow,
)
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
HALF = HASH_KEYS // 2
TEXT, NUMBER, FLAG = str, int, bool
SHAPE: dict[str, Any] = {
    "version": NUMBER,
    "app": TEXT,
    "table": TEXT,
    "leader": (TEXT, None),
    "paused": FLAG,
    "pause_reason": (TEXT, None),
    "members": [
        {
            "client_id": TEXT,
            "kind": TEXT,
            "session": TEXT,
            "index": (NUMBER, None),
            "leader": FLAG,
            "state": TEXT,
            "drained": FLAG,
            "heartbeat": NUMBER,
            "heartbeat_unchanged_seconds": (float, None),
            "stalled": FLAG,
            "last_update": TEXT,
            "weight": NUMBER,
            "label": TEXT,
            "streams": [TEXT],
            "range": (
                [{"stream_arn": TEXT, "first_hash": TEXT, "last_hash": TEXT}],
                None,
            ),
            "shards": NUMBER,
        }
    ],
    "streams": [
        {
            "stream_arn": TEXT,
            "start": TEXT,
            "baseline": FLAG,
            "paused": FLAG,
            "pause_reason": (TEXT, None),
            "retention_hours": (NUMBER, None),
            "lag_problem": (TEXT, None),
            "millis_behind_latest": (NUMBER, None),
            "states": {
                "owned": NUMBER,
                "moving": NUMBER,
                "unowned": NUMBER,
                "orphaned": NUMBER,
                "waiting": NUMBER,
                "ended": NUMBER,
            },
            "shards": [
                {
                    "shard_id": TEXT,
                    "first_hash": TEXT,
                    "last_hash": TEXT,
                    "share": float,
                    "state": TEXT,
                    "paused": (TEXT, None),
                    "pause_reason": (TEXT, None),
                    "owner": (TEXT, None),
                    "planned_owner": (TEXT, None),
                    "epoch": NUMBER,
                    "sequence_number": (TEXT, None),
                    "sub_sequence_number": (NUMBER, None),
                    "parents": [TEXT],
                    "millis_behind_latest": (NUMBER, None),
                }
            ],
        }
    ],
    "problems": [TEXT],
}
"""Types: a tuple lists the allowed ones, a list has that of its elements."""


def member(
    name: str, *, first: int = 0, last: int = HALF - 1, **more: Any
) -> MemberRow:
    fields: dict[str, Any] = {
        "index": 0,
        "range": (Interval(ARN, first, last),),
        "streams": frozenset({ARN}),
        **more,
    }
    return MemberRow(name, f"session of {name}", **fields)


def shard(number: int, **more: Any) -> ShardRow:
    fields: dict[str, Any] = {"ready": True, **more}
    return ShardRow(
        ShardKey(ARN, f"shardId-{number}"), 0, HALF - 1, Start.TRIM_HORIZON, **fields
    )


def owned_by(name: str, **more: Any) -> dict[str, Any]:
    return {"owner": f"session of {name}", "owner_id": name, **more}


SHARDS = [
    shard(0, **owned_by("a"), position=Position("495", 3), epoch=1),
    shard(1),
    shard(2, **owned_by("gone")),
    shard(3, ready=False, parents=frozenset({"shardId-0"})),
    shard(4, ended=True),
    shard(5, **owned_by("b")),
]
FOUND = Snapshot(
    [
        member("a"),
        member("b", first=HALF, last=HASH_KEYS - 1, index=1, state="degraded"),
        member("c", index=None, range=None),
        member("gone", dead=True),
    ],
    LeaderRow("session of a", "a", 1),
    [StreamRow(ARN, 1.0, Start.TRIM_HORIZON, baseline=True)],
    {ARN: SHARDS},
)
LAGS = Lags({SHARDS[0].key: 1500, SHARDS[1].key: 20}, {}, {ARN: 48})
SILENT = {"session of a": 0.5, "session of b": 7.0}


def test_each_state_of_a_shard() -> None:
    assert [FOUND.state(row) for row in SHARDS] == [
        "owned",
        "unowned",
        "orphaned",
        "waiting",
        "ended",
        "moving",
    ]


def test_problems_are_described() -> None:
    assert report("app", "table", FOUND, LAGS, SILENT)["problems"] == [
        "b looks stalled: its heartbeat is unchanged for 7.0 s",
        "b is degraded: it can't reach Kinesis",
        "stream orders: shardId-1 is unowned; planned for a",
        "stream orders: shardId-2 is orphaned (owner gone is dead); planned for a",
    ]


def test_a_dead_leader_does_not_lead() -> None:
    found = replace(FOUND, leader=LeaderRow("session of gone", "gone", 1))
    told = report("app", "table", found, LAGS, SILENT)
    assert told["leader"] is None
    assert told["problems"][0] == "no client leads"


def test_the_lag_of_a_stream_is_that_of_its_slowest_shard() -> None:
    stream = report("app", "table", FOUND, LAGS, SILENT)["streams"][0]
    assert stream["millis_behind_latest"] == 1500
    unknown = Lags({}, {ARN: "access denied"})
    stream = report("app", "table", FOUND, unknown, SILENT)["streams"][0]
    assert stream["millis_behind_latest"] is None
    assert stream["lag_problem"] == "access denied"


def test_retention_is_reported_if_lags_were_read() -> None:
    stream = report("app", "table", FOUND, LAGS, SILENT)["streams"][0]
    assert stream["retention_hours"] == 48
    stream = report("app", "table", FOUND, Lags({}, {}), SILENT)["streams"][0]
    assert stream["retention_hours"] is None


def test_a_pause_is_reported_with_its_reason_for_its_target_and_each_shard() -> None:
    group = GroupRow("g", paused=True, pause_reason="all of it")
    [stream] = FOUND.streams
    stopped = stream._replace(paused=True, pause_reason="bad data")
    one = [shard(1, paused=True), shard(2)]
    for found, at, reasons in (
        (replace(FOUND, group=group), ("all", "all of it"), ["all of it", None]),
        (replace(FOUND, streams=[stopped]), ("stream", "bad data"), [None, "bad data"]),
    ):
        told = report("app", "table", found, LAGS, SILENT)
        [stream_told] = told["streams"]
        assert [told["pause_reason"], stream_told["pause_reason"]] == reasons
        assert {(s["paused"], s["pause_reason"]) for s in stream_told["shards"]} == {at}
    told = report("app", "table", replace(FOUND, shards={ARN: one}), LAGS, SILENT)
    assert [s["paused"] for s in told["streams"][0]["shards"]] == ["shard", None]
    assert (told["paused"], told["streams"][0]["paused"]) == (False, False)


def test_paused_shards_are_not_a_problem() -> None:
    found = replace(FOUND, group=GroupRow("g", paused=True))
    problems = report("app", "table", found, LAGS, SILENT)["problems"]
    assert not [text for text in problems if "shardId" in text]


def test_a_problem_is_reported_if_all_clients_are_drained() -> None:
    drained = [member("a", drained=True), member("gone", dead=True)]
    found = replace(FOUND, members=[*drained, member("b")])
    assert "drained" not in str(report("app", "table", found, LAGS, SILENT)["problems"])
    told = report("app", "table", replace(FOUND, members=drained), LAGS, SILENT)
    assert "all clients are drained: no client may consume" in told["problems"]


def test_an_interrupted_reset_is_a_problem() -> None:
    found = replace(FOUND, group=GroupRow("g", resetting=True))
    problems = report("app", "table", found, LAGS, SILENT)["problems"]
    assert any("kinesumer reset again" in text for text in problems)


def test_the_json_has_the_documented_shape() -> None:
    told = json.loads(json.dumps(report("app", "table", FOUND, LAGS, SILENT)))
    assert list(mismatches(told, SHAPE, "report")) == []


def test_every_field_is_documented() -> None:
    document = Path(__file__).parents[3] / "docs" / "status-json.md"
    text = document.read_text()
    for name in names(SHAPE):
        assert f"`{name}`" in text, name


def mismatches(value: Any, shape: Any, where: str) -> list[str]:
    """Return where a value differs from its shape."""
    if isinstance(shape, tuple):
        if value is None:
            return [] if None in shape else [where]
        return mismatches(value, shape[0], where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [where]
        return [m for v in value for m in mismatches(v, shape[0], f"{where}[]")]
    if isinstance(shape, dict):
        if not isinstance(value, dict) or value.keys() != shape.keys():
            return [f"{where}: {sorted(value)} for {sorted(shape)}"]
        return [
            m for k, v in value.items() for m in mismatches(v, shape[k], f"{where}.{k}")
        ]
    return [] if type(value) is shape else [f"{where}: {value!r} is no {shape}"]


def names(shape: Any) -> set[str]:
    """Return the names of all fields."""
    if isinstance(shape, dict):
        return set(shape).union(*(names(part) for part in shape.values()))
    if isinstance(shape, list | tuple):
        return set[str]().union(*(names(part) for part in shape))
    return set()
