"""Find events between two observations, and merge similar ones.

Observations say what a report of a group doesn't: the dead clients, the last owner of a
shard that has none, and the pause of a shard that a wider pause covers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from kinesumer.model.rows import GroupRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import stream_name
from kinesumer.ops.dashboard.model import Event
from kinesumer.ops.group.observation import Observation
from kinesumer.runtime.text import escape_unprintable

K = TypeVar("K")


def find_events(before: Observation, after: Observation) -> list[Event]:
    """Return the events, causes before effects. They have no times and numbers yet."""
    events = [
        *_joined(before, after),
        *_gone(before, after),
        *_changed(before, after),
        *_led(before, after),
        *_paused("everything", None, before.snapshot.group, after.snapshot.group),
        *_streams(before, after),
    ]
    for stream in after.snapshot.streams:
        events += _shard_events(stream.arn, before, after)
    return events


def _joined(before: Observation, after: Observation) -> Iterator[Event]:
    sessions = {member.session for member in before.snapshot.members}
    ids = {member.client_id for member in before.snapshot.members}
    for member in after.snapshot.alive:
        if member.session not in sessions:
            again = " again, in a new session" if member.client_id in ids else ""
            yield _member_event(member, "joined", f"joined{again}")


def _gone(before: Observation, after: Observation) -> Iterator[Event]:
    for member in before.snapshot.alive:
        if member.session in after.snapshot.sessions:
            continue
        kind, text = "fenced", "left or was fenced"
        if member.state != "leaving" and before.is_stalled(member):
            text = "was fenced: its heartbeat had stopped"
        elif (
            member.state == "leaving"
            # Fencing takes longer than a lease, so the client marked itself dead.
            or after.at - before.at < member.lease_ms / 1000
        ):
            kind, text = "left", "left"
        yield _member_event(member, kind, text)


def _changed(before: Observation, after: Observation) -> Iterator[Event]:
    earlier = {member.session: member for member in before.snapshot.alive}
    for member in after.snapshot.alive:
        old = earlier.get(member.session)
        if old is None:
            continue
        if member.state != old.state:
            texts = {
                "leaving": "is leaving: its shards move",
                "degraded": "is degraded: it can't reach Kinesis",
            }
            kind = member.state if member.state in texts else "recovered"
            other = f"is {escape_unprintable(member.state)} again"
            yield _member_event(member, kind, texts.get(member.state, other))
        if member.drained and not old.drained:
            yield _member_event(member, "drained", "is drained")
        elif old.drained and not member.drained:
            yield _member_event(member, "undrained", "may have shards again")
        was, is_ = before.is_stalled(old), after.is_stalled(member)
        if is_ and not was:
            text = f"stalled: no heartbeat for {after.age(member):.0f} s"
            yield _member_event(member, "stalled", text)
        elif was and not is_:
            yield _member_event(member, "recovered", "sends heartbeats again")


def _member_event(member: MemberRow, kind: str, text: str) -> Event:
    text = f"{escape_unprintable(member.client_id)} {text}"
    return Event(kind=kind, text=text, client_id=member.client_id)


def _led(before: Observation, after: Observation) -> Iterator[Event]:
    old_id, new_id = before.snapshot.leader_id, after.snapshot.leader_id
    then, now = before.snapshot.leader, after.snapshot.leader
    if new_id is None:
        if old_id is not None:
            text = f"no client leads: {escape_unprintable(old_id)} no longer does"
            yield Event(kind="leaderless", text=text)
    # Compare sessions, too: a restarted leader may have the same client ID.
    elif old_id is None or not (then and now and then.session == now.session):
        text = f"{escape_unprintable(new_id)} leads"
        yield Event(kind="led", text=text, client_id=new_id)


def _streams(before: Observation, after: Observation) -> Iterator[Event]:
    known = {stream.arn: stream for stream in before.snapshot.streams}
    for stream in after.snapshot.streams:
        name = f"stream {stream_name(stream.arn)}"
        yield from _paused(name, stream.arn, known.get(stream.arn), stream)
        if stream.arn not in known:
            count = len(after.snapshot.shards[stream.arn])
            text = f"{name} is new, with {count} shards"
            yield Event(kind="joined", text=text, stream=stream.arn)


def _paused(
    name: str,
    arn: str | None,
    old: GroupRow | StreamRow | None,
    new: GroupRow | StreamRow | None,
) -> Iterator[Event]:
    was, is_ = (row is not None and row.paused for row in (old, new))
    if new is not None and is_ and not was:
        why = f": {escape_unprintable(new.pause_reason)}" if new.pause_reason else ""
        yield Event(kind="paused", text=f"{name} is paused{why}", stream=arn)
    elif was and not is_:
        yield Event(kind="resumed", text=f"{name} is resumed", stream=arn)


def _shard_events(arn: str, before: Observation, after: Observation) -> Iterator[Event]:
    """Yield the events of one stream's shards, causes before effects."""
    known = {row.key: row for row in before.snapshot.shards.get(arn, [])}
    rows = after.snapshot.shards[arn]
    # Rows that are new before the first complete listing aren't the result of a split.
    if any(s.arn == arn and s.baseline for s in before.snapshot.streams):
        yield from _reshards(arn, [row for row in rows if row.key not in known])
    pairs = [(known[row.key], row) for row in rows if row.key in known]
    for kind, text, changed in (
        ("ended", "read to the end", [n for o, n in pairs if n.ended and not o.ended]),
        ("paused", "paused", [n for o, n in pairs if n.paused and not o.paused]),
        ("resumed", "resumed", [n for o, n in pairs if o.paused and not n.paused]),
        ("seeked", "seeked", [n for o, n in pairs if _was_seeked(o, n)]),
        (
            "isolated",
            "read one record at a time, because owners died at the same position",
            [n for o, n in pairs if n.is_isolated and not o.is_isolated],
        ),
        (
            "recovered",
            "no longer read one record at a time",
            [n for o, n in pairs if o.is_isolated and not (n.is_isolated or n.ended)],
        ),
    ):
        if changed:
            yield _event(arn, kind, f"{_named(changed)} {text}")
    for old_row, row in pairs:
        if row.poison is not None and row.poison != old_row.poison:
            text = f"record {row.poison.text} of {_named([row])} kills its readers"
            yield _event(arn, "poison", text)
    moves = _group_by(rows, lambda row: (before.owners.get(row.key, ""), row.owner_id))
    for (old, new), moved in moves.items():
        if not new or new == old:
            continue
        if old:
            owners = f"from {escape_unprintable(old)} to {escape_unprintable(new)}"
            yield _event(arn, "moved", f"{_named(moved)} moved {owners}", new)
        else:
            text = f"{escape_unprintable(new)} took {_named(moved)}"
            yield _event(arn, "taken", text, new)
    fresh = after.stuck - before.stuck
    stuck = [row for row in rows if row.key in fresh]
    for owner, shards in _group_by(stuck, lambda row: row.owner_id).items():
        text = (
            f"{_named(shards)} stalled at {escape_unprintable(owner)}: behind, and no "
            "progress for a minute"
        )
        yield _event(arn, "stalled", text, owner)


def _was_seeked(old: ShardRow, new: ShardRow) -> bool:
    """Return whether a shard was seeked: only a seek moves a position back."""
    if old.ended and not new.ended:
        return True
    if old.position is None or new.ended:
        return False
    return new.position is None or new.position < old.position


def _reshards(arn: str, rows: Sequence[ShardRow]) -> Iterator[Event]:
    for row in rows:
        if len(row.parents) > 1:
            parents = " and ".join(_short(parent) for parent in sorted(row.parents))
            text = f"{parents} merge into {_short(row.key.shard_id)}"
            yield _event(arn, "merged", text)
    children = [row for row in rows if len(row.parents) == 1]
    for (parent,), split in _group_by(children, lambda row: row.parents).items():
        names = " and ".join(_short(row.key.shard_id) for row in split)
        yield _event(arn, "split", f"{_short(parent)} splits into {names}")


def _group_by(
    rows: Iterable[ShardRow], key: Callable[[ShardRow], K]
) -> dict[K, list[ShardRow]]:
    groups: dict[K, list[ShardRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _event(arn: str, kind: str, text: str, client_id: str | None = None) -> Event:
    text = f"{stream_name(arn)}: {text}"
    return Event(kind=kind, text=text, client_id=client_id, stream=arn)


def _named(rows: Sequence[ShardRow]) -> str:
    if len(rows) == 1:
        return f"shard {_short(rows[0].key.shard_id)}"
    return f"{len(rows)} shards"


def _short(shard_id: str) -> str:
    """Return a shard's number: 12 for shardId-000000000012."""
    number = shard_id.rpartition("-")[2]
    return number.lstrip("0") or "0" if number.isdigit() else shard_id
