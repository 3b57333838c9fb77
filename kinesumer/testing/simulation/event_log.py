"""Format the last events of a simulation as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ports import Write
from kinesumer.wire.deaths import TRIED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    key, values, stream = write.key.sk, write.set, rest.rpartition("/")[2]
    shard = f"{stream}/{key.rpartition('/')[2]}"
    if write.delete:
        return f"prunes {shard if kind == 'shard' else key}"
    if kind == "member":
        return _member(key, values)
    if kind == "shard":
        return _shard(shard, values, write.remove)
    if kind != "leader":
        return f"writes {stream} {key.rpartition('/')[2]}"
    if "session" in values:
        return f"leads in session {values['session']}, epoch {values['leader_epoch']}"
    return f"publishes plan version {values.get('plan_version')}"


def _member(client_id: str, values: Mapping[str, Value]) -> str:
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


def _shard(shard: str, values: Mapping[str, Value], removed: Sequence[str]) -> str:
    at = ""
    if "sequence_number" in values:
        part = values.get("sub_sequence_number")
        at = f" at …{str(values['sequence_number'])[-6:]}"
        at += "" if part is None else f" part {part}"
    if "epoch" in values and "claim" in removed:
        return f"seeks {shard} to {at or values.get('start')}, epoch {values['epoch']}"
    if "paused" in (*values, *removed):
        return f"{'pauses' if 'paused' in values else 'resumes'} {shard}"
    if "claim" in values:
        claim = f"claims {shard} for {values.get('owner')}, epoch {values.get('epoch')}"
        return f"{claim}{_deaths(values)}"
    if TRIED in values:
        return f"notes that {shard} tries {_short(values[TRIED])}"
    if "owner" in removed:
        return f"{'ends' if values.get('ended') is True else 'releases'} {shard}{at}"
    if "sequence_number" in values:
        forgets = ", and forgets its deaths" if "deaths" in removed else ""
        return f"commits {shard}{at}{forgets}"
    if TRIED in removed:
        return f"forgets the {'deaths' if 'deaths' in removed else 'tried'} of {shard}"
    if "tip" in values:
        return f"notes the tip of {shard}, {values['tip']}"
    if "ready" in values and len(values) == 1:
        return f"makes {shard} ready"
    return f"creates {shard}, parents {values.get('parents', 'none')}"


def _deaths(values: Mapping[str, Value]) -> str:
    """Return what a claim says about the deaths of the shard's owners."""
    if "deaths" not in values:
        return ""
    named = [f"{n} {_short(values[n])}" for n in ("suspect", "poison") if n in values]
    return ", ".join(["", f"deaths {values['deaths']}", *named])


def _short(position: Value) -> str:
    number, _, part = str(position).partition(":")
    return f"…{number[-6:]}" + (f" part {part}" if part else "")
