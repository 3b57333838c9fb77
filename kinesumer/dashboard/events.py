"""What happened between two looks at a fleet: a pure function of both."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from kinesumer.dashboard.model import Event
from kinesumer.dashboard.shard_events import shard_events
from kinesumer.errors import shown
from kinesumer.model import stream_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.dashboard.sightings import Sighting
    from kinesumer.wire.rows import GroupRow, MemberRow, StreamRow


def between(before: Sighting, after: Sighting) -> list[Event]:
    """Return what happened, without times and numbers, causes before what follows."""
    arns = [stream.arn for stream in after.found.streams]
    return list(
        chain(
            _joined(before, after),
            _gone(before, after),
            _changed(before, after),
            _led(before, after),
            _paused("everything", None, before.found.group, after.found.group),
            _streams(before, after),
            chain.from_iterable(shard_events(arn, before, after) for arn in arns),
        )
    )


def _joined(before: Sighting, after: Sighting) -> Iterator[Event]:
    known = {member.session for member in before.found.members}
    names = {member.client_id for member in before.found.members}
    for member in after.found.alive:
        if member.session not in known:
            again = " again, in a new session" if member.client_id in names else ""
            yield _of(member, "joined", f"{shown(member.client_id)} joined{again}")


def _gone(before: Sighting, after: Sighting) -> Iterator[Event]:
    for member in before.found.alive:
        if member.session in after.found.sessions:
            continue
        name = shown(member.client_id)
        if member.state == "leaving":
            yield _of(member, "left", f"{name} left")
        elif member.session in before.silent:
            yield _of(member, "fenced", f"{name} was fenced: its heart had stopped")
        elif after.at - before.at < member.lease_ms / 1000:
            # Too little time for others to give it up: it marked itself.
            yield _of(member, "left", f"{name} left")
        else:
            text = f"{name} left or was fenced, while nobody looked"
            yield _of(member, "fenced", text)


def _changed(before: Sighting, after: Sighting) -> Iterator[Event]:
    earlier = {member.session: member for member in before.found.alive}
    for member in after.found.alive:
        old = earlier.get(member.session)
        if old is None:
            continue
        name = shown(member.client_id)
        if member.state != old.state:
            yield _of(member, *_state(name, member.state))
        if member.drained != old.drained:
            kind = "drained" if member.drained else "undrained"
            said = "is drained" if member.drained else "may have shards again"
            yield _of(member, kind, f"{name} {said}")
        was, is_ = (member.session in seen.silent for seen in (before, after))
        if is_ and not was:
            age = after.age(member.session)
            text = f"{name} stalled: no heartbeat for {age:.0f} s"
            yield _of(member, "stalled", text)
        elif was and not is_:
            yield _of(member, "recovered", f"{name} beats again")


def _state(name: str, state: str) -> tuple[str, str]:
    if state == "leaving":
        return "leaving", f"{name} is leaving: its shards move"
    if state == "degraded":
        return "degraded", f"{name} is degraded: it can't reach Kinesis"
    return "recovered", f"{name} is {shown(state)} again"


def _led(before: Sighting, after: Sighting) -> Iterator[Event]:
    then, now = before.found.leader, after.found.leader
    if after.found.leader_id is None:
        if before.found.leader_id is not None:
            name = shown(before.found.leader_id)
            text = f"nobody leads: {name} no longer does"
            yield Event(kind="leaderless", text=text)
        return
    assert now is not None
    if then is None or before.found.leader_id is None or then.session != now.session:
        name = shown(now.client_id)
        yield Event(kind="led", text=f"{name} leads", client_id=now.client_id)


def _streams(before: Sighting, after: Sighting) -> Iterator[Event]:
    known = {stream.arn: stream for stream in before.found.streams}
    for stream in after.found.streams:
        name = f"stream {stream_name(stream.arn)}"
        yield from _paused(name, stream.arn, known.get(stream.arn), stream)
        if stream.arn not in known:
            count = len(after.found.shards[stream.arn])
            text = f"stream {stream_name(stream.arn)} is new here, with {count} shards"
            yield Event(kind="joined", text=text, stream=stream.arn)


def _paused(
    name: str,
    arn: str | None,
    old: GroupRow | StreamRow | None,
    new: GroupRow | StreamRow | None,
) -> Iterator[Event]:
    was, is_ = (row is not None and row.paused for row in (old, new))
    if new is not None and is_ and not was:
        why = f": {shown(new.pause_reason)}" if new.pause_reason else ""
        yield Event(kind="paused", text=f"{name} is paused{why}", stream=arn)
    elif was and not is_:
        yield Event(kind="resumed", text=f"{name} is resumed", stream=arn)


def _of(member: MemberRow, kind: str, text: str) -> Event:
    return Event(kind=kind, text=text, client_id=member.client_id)
