"""Find events between two observations; similar events are merged into one."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from kinesumer.dashboard.model import Event
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesumer.admin.observation import Observation
    from kinesumer.model.rows import GroupRow, MemberRow, ShardRow, StreamRow


Pairs = list[tuple["ShardRow", "ShardRow"]]
"""The rows of one shard, before and after."""


def shard_events(arn: str, before: Observation, after: Observation) -> Iterator[Event]:
    """Yield the events of one stream, causes before effects."""
    known = {row.key: row for row in before.snapshot.shards.get(arn, [])}
    rows = after.snapshot.shards[arn]
    pairs = [(known[row.key], row) for row in rows if row.key in known]
    if any(s.arn == arn and s.baseline for s in before.snapshot.streams):
        yield from _reshards(arn, [row for row in rows if row.key not in known])
    ended = [row for old, row in pairs if row.ended and not old.ended]
    if ended:
        yield _event(arn, "ended", f"{_named(ended)} read to the end")
    yield from chain(
        _of_operators(arn, pairs),
        _moved(arn, rows, before),
        _stuck(arn, rows, before, after),
    )


def _of_operators(arn: str, pairs: Pairs) -> Iterator[Event]:
    """Yield pauses and seeks of single shards."""
    paused = [row for old, row in pairs if row.paused and not old.paused]
    resumed = [row for old, row in pairs if old.paused and not row.paused]
    seeked = [row for old, row in pairs if _went_back(old, row)]
    for kind, changed in (("paused", paused), ("resumed", resumed)):
        if changed:
            yield _event(arn, kind, f"{_named(changed)} {kind}")
    if seeked:
        yield _event(arn, "sought", f"{_named(seeked)} seeked")


def _went_back(old: ShardRow, new: ShardRow) -> bool:
    """Return whether a shard was seeked: only seeks move a position back."""
    if old.ended and not new.ended:
        return True
    if old.position is None or new.ended:
        return False
    return new.position is None or new.position < old.position


def _reshards(arn: str, fresh: Sequence[ShardRow]) -> Iterator[Event]:
    splits: dict[str, list[ShardRow]] = defaultdict(list)
    for row in fresh:
        if len(row.parents) > 1:
            parents = " and ".join(_short(parent) for parent in sorted(row.parents))
            text = f"{parents} merge into {_short(row.key.shard_id)}"
            yield _event(arn, "merged", text)
        for parent in row.parents if len(row.parents) == 1 else ():
            splits[parent].append(row)
    for parent, children in splits.items():
        names = " and ".join(_short(row.key.shard_id) for row in children)
        yield _event(arn, "split", f"{_short(parent)} splits into {names}")


def _moved(arn: str, rows: Sequence[ShardRow], before: Observation) -> Iterator[Event]:
    moves: dict[tuple[str, str], list[ShardRow]] = defaultdict(list)
    for row in rows:
        old = before.owners.get(row.key, "")
        if row.owner_id and row.owner_id != old:
            moves[old, row.owner_id].append(row)
    for (old, new), moved in moves.items():
        target = escape_unprintable(new)
        text = f"{_named(moved)} moved from {escape_unprintable(old)} to {target}"
        if not old:
            text = f"{target} took {_named(moved)}"
        yield _event(arn, "moved" if old else "taken", text, new)


def _stuck(
    arn: str, rows: Sequence[ShardRow], before: Observation, after: Observation
) -> Iterator[Event]:
    stuck: dict[str, list[ShardRow]] = defaultdict(list)
    for row in rows:
        if row.key in after.stuck and row.key not in before.stuck:
            stuck[row.owner_id].append(row)
    for owner, shards in stuck.items():
        text = (
            f"{_named(shards)} stalled at {escape_unprintable(owner)}: behind, and no "
            "progress for a minute"
        )
        yield _event(arn, "stalled", text, owner)


def _event(arn: str, kind: str, text: str, client_id: str | None = None) -> Event:
    return Event(
        kind=kind, text=f"{stream_name(arn)}: {text}", client_id=client_id, stream=arn
    )


def _named(rows: Sequence[ShardRow]) -> str:
    if len(rows) == 1:
        return f"shard {_short(rows[0].key.shard_id)}"
    return f"{len(rows)} shards"


def _short(shard_id: str) -> str:
    """Return a shard's number: 12 for shardId-000000000012."""
    number = shard_id.rpartition("-")[2]
    return number.lstrip("0") or "0" if number.isdigit() else shard_id


def find_events(before: Observation, after: Observation) -> list[Event]:
    """Return the events, without times and numbers, causes before effects."""
    arns = [stream.arn for stream in after.snapshot.streams]
    return list(
        chain(
            _joined(before, after),
            _gone(before, after),
            _changed(before, after),
            _led(before, after),
            _paused("everything", None, before.snapshot.group, after.snapshot.group),
            _streams(before, after),
            chain.from_iterable(shard_events(arn, before, after) for arn in arns),
        )
    )


def _joined(before: Observation, after: Observation) -> Iterator[Event]:
    known = {member.session for member in before.snapshot.members}
    names = {member.client_id for member in before.snapshot.members}
    for member in after.snapshot.alive:
        if member.session not in known:
            again = " again, in a new session" if member.client_id in names else ""
            yield _of(
                member,
                "joined",
                f"{escape_unprintable(member.client_id)} joined{again}",
            )


def _gone(before: Observation, after: Observation) -> Iterator[Event]:
    for member in before.snapshot.alive:
        if member.session in after.snapshot.sessions:
            continue
        name = escape_unprintable(member.client_id)
        if member.state == "leaving":
            yield _of(member, "left", f"{name} left")
        elif before.is_stalled(member):
            yield _of(member, "fenced", f"{name} was fenced: its heartbeat had stopped")
        elif after.at - before.at < member.lease_ms / 1000:
            # Fencing takes longer than this, so the client marked itself dead.
            yield _of(member, "left", f"{name} left")
        else:
            text = f"{name} left or was fenced, while no page was open"
            yield _of(member, "fenced", text)


def _changed(before: Observation, after: Observation) -> Iterator[Event]:
    earlier = {member.session: member for member in before.snapshot.alive}
    for member in after.snapshot.alive:
        old = earlier.get(member.session)
        if old is None:
            continue
        name = escape_unprintable(member.client_id)
        if member.state != old.state:
            yield _of(member, *_state(name, member.state))
        if member.drained != old.drained:
            kind = "drained" if member.drained else "undrained"
            said = "is drained" if member.drained else "may have shards again"
            yield _of(member, kind, f"{name} {said}")
        was, is_ = before.is_stalled(old), after.is_stalled(member)
        if is_ and not was:
            age = after.age(member.session)
            text = f"{name} stalled: no heartbeat for {age:.0f} s"
            yield _of(member, "stalled", text)
        elif was and not is_:
            yield _of(member, "recovered", f"{name} sends heartbeats again")


def _state(name: str, state: str) -> tuple[str, str]:
    if state == "leaving":
        return "leaving", f"{name} is leaving: its shards move"
    if state == "degraded":
        return "degraded", f"{name} is degraded: it can't reach Kinesis"
    return "recovered", f"{name} is {escape_unprintable(state)} again"


def _led(before: Observation, after: Observation) -> Iterator[Event]:
    then, now = before.snapshot.leader, after.snapshot.leader
    if after.snapshot.leader_id is None:
        if before.snapshot.leader_id is not None:
            name = escape_unprintable(before.snapshot.leader_id)
            text = f"no client leads: {name} no longer does"
            yield Event(kind="leaderless", text=text)
        return
    assert now is not None
    if then is None or before.snapshot.leader_id is None or then.session != now.session:
        name = escape_unprintable(now.client_id)
        yield Event(kind="led", text=f"{name} leads", client_id=now.client_id)


def _streams(before: Observation, after: Observation) -> Iterator[Event]:
    known = {stream.arn: stream for stream in before.snapshot.streams}
    for stream in after.snapshot.streams:
        name = f"stream {stream_name(stream.arn)}"
        yield from _paused(name, stream.arn, known.get(stream.arn), stream)
        if stream.arn not in known:
            count = len(after.snapshot.shards[stream.arn])
            text = f"stream {stream_name(stream.arn)} is new, with {count} shards"
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


def _of(member: MemberRow, kind: str, text: str) -> Event:
    return Event(kind=kind, text=text, client_id=member.client_id)
