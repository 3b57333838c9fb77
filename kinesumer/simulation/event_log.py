"""Format the last events of a simulation for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ports import Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesumer.model.rows import Value

    Event = tuple[float, str, object, object]

LAST = 60


def format_events(events: Iterable[Event], last: int = LAST) -> list[str]:
    """Return the last events as lines, with only the last heartbeat of each client."""
    lines: list[str] = []
    beating: set[object] = set()
    for at, kind, who, what in reversed([*events]):
        if isinstance(what, Write):
            if _is_beat(what):
                if what.key in beating:
                    continue
                beating.add(what.key)
            lines.append(f"{at:10.3f}  {who} {_write(what)}")
        else:
            lines.append(f"{at:10.3f}  {kind}: {who} {what}".rstrip(" :"))
        if len(lines) == last:
            break
    return lines[::-1]


def _is_beat(write: Write) -> bool:
    return "beat" in write.set and "session" not in write.set


def _write(write: Write) -> str:
    kind, _, rest = write.key.pk.partition("#")
    if write.delete:
        return f"prunes {_shard(write) if kind == 'shard' else write.key.sk}"
    if kind == "member":
        return _member(write)
    if kind == "leader":
        return _leader(write)
    if kind == "shard":
        return _shard_write(write)
    return f"writes {rest.rpartition('/')[2]} {write.key.sk.rpartition('/')[2]}"


def _member(write: Write) -> str:
    client_id, values = write.key.sk, write.set
    if "session" in values:
        return f"registers {client_id} as session {values['session']}"
    if "dead" in values:
        return f"declares {client_id} dead"
    if "plan_version" in values:
        plan = f"plan {values['leader_epoch']}.{values['plan_version']}"
        return f"assigns {client_id} {values.get('range') or 'nothing'} by {plan}"
    if "beat" in values:
        return f"beats {values['beat']}, {values.get('state')}"
    return f"changes {', '.join(values)} of {client_id}"


def _leader(write: Write) -> str:
    values = write.set
    if "session" in values:
        return f"leads in session {values['session']}, epoch {values['leader_epoch']}"
    return f"publishes plan version {values.get('plan_version')}"


def _shard(write: Write) -> str:
    stream = write.key.pk.rpartition("/")[2]
    return f"{stream}/{write.key.sk.rpartition('/')[2]}"


def _shard_write(write: Write) -> str:
    shard, values = _shard(write), write.set
    at = _position(values)
    if "epoch" in values and "claim" in write.remove:
        return f"seeks {shard} to {at or values.get('start')}, epoch {values['epoch']}"
    if "paused" in (*values, *write.remove):
        return f"{'pauses' if 'paused' in values else 'resumes'} {shard}"
    if "claim" in values:
        return f"claims {shard} for {values.get('owner')}, epoch {values.get('epoch')}"
    if values.get("ended") is True and "owner" in write.remove:
        return f"ends {shard}{at}"
    if "owner" in write.remove:
        return f"releases {shard}{at}"
    if "sequence_number" in values:
        return f"commits {shard}{at}"
    if "tip" in values:
        return f"notes the tip of {shard}, {values['tip']}"
    if "ready" in values and len(values) == 1:
        return f"makes {shard} ready"
    return f"creates {shard}, parents {values.get('parents', 'none')}"


def _position(values: Mapping[str, Value]) -> str:
    if "sequence_number" not in values:
        return ""
    number = str(values["sequence_number"])
    part = values.get("sub_sequence_number")
    return f" at …{number[-6:]}" + ("" if part is None else f" part {part}")
