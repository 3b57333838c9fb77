"""Say what a write means, and compare the writes of a recording and of its replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kinesumer.ports import Write
from kinesumer.telemetry.history import Line, encode_line
from kinesumer.telemetry.recorded_calls import write_arguments

# Writes that a client repeats with other values. One more or less changes nothing, if
# the rows show that it is still the owner.
REPEATED = frozenset(("heartbeat", "commit", "note tip", "announce"))
# Attributes that hold ids drawn by the client. A replay draws others.
IDS = ("session", "claim", "group_id")
# Attributes whose values depend on milliseconds, or on the data of records.
VOLATILE = frozenset(
    (
        *IDS,
        "last_update",
        "sequence_number",
        "sub_sequence_number",
        "tip",
        "planned_at",
        "rebalance_ms",
        "updated_at",
        "incidents",
        "failures",
        "load",
        "died_at",
        "tried",
        "suspect",
        "poison",
    )
)


def arguments_of(write: Write) -> Line:
    """Return a write as the lines of a recording have it."""
    line: Line = msgspec.json.decode(encode_line(write_arguments(write)))
    return line


def kind_of(write: Line) -> str:
    """Return what a write does."""
    row, _, _ = write["key"][0].partition("#")
    values: Mapping[str, Any] = write["set"]
    if write["delete"]:
        return f"delete {row}"
    match row:
        case "shard":
            return _shard_kind(values, write["remove"])
        case "member":
            return _member_kind(values, replaces=write["replace"])
        case "leader":
            return "lead" if "client_id" in values else "publish"
        case "apps":
            return "announce"
        case "group":
            return "create group" if write["key"][1] == "group" else "set up stream"
        case _:
            return f"write {row}"


def _shard_kind(values: Mapping[str, Any], removed: list[str]) -> str:
    if "owner" in removed:
        return "end shard" if values.get("ended") is True else "release"
    if "last_hash" in values:
        return "create shard"
    for name, kind in SHARD_KINDS.items():
        if name in values:
            return kind
    return "forget deaths"


SHARD_KINDS = {
    "claim": "claim",
    "ready": "open shard",
    "ended": "reopen shard",
    "notes": "note tried record",
    "sequence_number": "commit",
    "tip": "note tip",
}


def _member_kind(values: Mapping[str, Any], *, replaces: bool) -> str:
    if replaces:
        return "register"
    for name, kind in MEMBER_KINDS.items():
        if name in values:
            return kind
    return "write member"


MEMBER_KINDS = {
    "beat": "heartbeat",
    "dead": "mark dead",
    "range": "assign",
    "streams": "request streams",
}


def essence(write: Line, ids: Mapping[str, str]) -> Any:
    """Return what has to be the same in a recording and in its replay.

    ``ids`` translates those of the recording into those of the replay.
    """
    values = {
        name: _plain(value, ids)
        for name, value in write["set"].items()
        if name not in VOLATILE
    }
    removed = sorted(set(write["remove"]) - VOLATILE)
    return kind_of(write), values, removed


def _plain(value: Any, ids: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return sorted(value)
    return ids.get(value, value) if isinstance(value, str) else value


def session_of(write: Line) -> str | None:
    """Return the session that must own the row for a write to apply, if any."""
    condition = write["condition"]
    parts = condition[1:] if condition[0] == "and" else [condition]
    required = {part[0]: part[2] for part in parts if part[1] == "="}
    session: str | None = required.get("owner") or required.get("session")
    return session


def same_ids(recorded: Line, replayed: Line) -> dict[str, str]:
    """Return the ids that two writes draw, those of the recording as keys."""
    return {
        recorded["set"][name]: replayed["set"][name]
        for name in IDS
        if name in recorded["set"] and name in replayed["set"]
    }


def text_of(write: Line) -> str:
    """Return a write in words."""
    kind, (partition, sort) = kind_of(write), write["key"]
    row = partition.partition("#")[0]
    if row == "shard":
        stream = partition.rpartition("/")[2]
        epoch = write["set"].get("epoch")
        claimed = "" if epoch is None else f", epoch {epoch}"
        return f"{kind} {stream} {sort.partition('/')[2]}{claimed}"
    if row == "member":
        return f"{kind} {sort}"
    return kind
