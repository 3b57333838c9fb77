"""Rows that can't be read, and members that aren't well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.status import stall_limit_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.model.rows import MemberRow

CHECK = "members"


def member_problems(seen: AppObservation) -> Iterator[Finding]:
    """Tell of corrupt rows, of nobody alive or leading, and of members in trouble."""
    for text in seen.second.corrupt:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            "a row of the state store",
            text,
            "correct the attribute, or delete the row if it belongs to nobody; only "
            "what it is about stands still",
        )
    yield from _resetting(seen)
    yield from _lifeless(seen)
    yield from _leaderless(seen)
    for member in seen.second.alive:
        yield from _of(member, seen.silent)


def _resetting(seen: AppObservation) -> Iterator[Finding]:
    if seen.first.resetting and seen.second.resetting:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            f"app {seen.app}",
            "a reset has begun and isn't complete: clients that start are refused",
            "run kinesumer reset again, unless somebody is at it",
        )


def _lifeless(seen: AppObservation) -> Iterator[Finding]:
    """The last who died are fenced by nobody: their rows look alive."""
    if any(not _stands_still(m, seen.silent) for m in seen.second.alive):
        return
    yield Finding(
        CHECK,
        Severity.CRITICAL if seen.second.streams else Severity.NOTE,
        f"app {seen.app}",
        "no client is alive: nothing is read",
        "start clients before retention runs out",
    )


def _stands_still(member: MemberRow, silent: Mapping[str, float]) -> bool:
    return silent.get(member.session, 0.0) > stall_limit_seconds(member)


def _leaderless(seen: AppObservation) -> Iterator[Finding]:
    if not seen.clients:
        return
    if seen.first.leader_id is None and seen.second.leader_id is None:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            f"app {seen.app}",
            f"nobody has led for {seen.seconds:.0f} s, though clients live: no plan is "
            "made, and no reshard followed",
            "look at the clients' logs: they can't write the leader's row, or it can't "
            "be read",
        )
    first, second = seen.first.leader, seen.second.leader
    if first and second and second.leader_epoch - first.leader_epoch > 1:
        yield Finding(
            CHECK,
            Severity.WARNING,
            f"app {seen.app}",
            f"the leader changed {second.leader_epoch - first.leader_epoch} times "
            f"within {seen.seconds:.0f} s",
            "look for clients that stand still for seconds: a full CPU, a blocked "
            "process, a suspended machine",
        )


def _of(member: MemberRow, silent: Mapping[str, float]) -> Iterator[Finding]:
    subject = f"client {member.client_id}"
    if _stands_still(member, silent):
        yield Finding(
            CHECK,
            Severity.WARNING,
            subject,
            f"its heartbeat has been unchanged for {silent[member.session]:.1f} s: it "
            f"is stopped or dead, and fenced after {member.lease_ms / 1000:.0f} s",
            "nothing, if it was killed: others take over; else look at its log",
        )
    if member.state == "degraded":
        yield Finding(
            CHECK,
            Severity.WARNING,
            subject,
            "it is degraded: it can't reach Kinesis, and others have its shards",
            "look at its log, its network and its credentials",
        )
    if member.drained:
        yield Finding(
            CHECK,
            Severity.NOTE,
            subject,
            "an operator has drained it: it takes no shards",
            f"kinesumer drain {member.client_id} --undo, when it shall work again",
        )


def operator_pauses(seen: AppObservation) -> Iterator[Finding]:
    """Tell of what operators have paused: positions stand still while time passes."""
    found = seen.second
    advice = "kinesumer resume, before retention runs out"
    if found.group is not None and found.group.paused:
        text = f"all streams are paused{_why(found.group.pause_reason)}"
        yield Finding(CHECK, Severity.NOTE, f"app {seen.app}", text, advice)
    for stream in found.streams:
        if stream.paused:
            text = f"is paused{_why(stream.pause_reason)}"
            yield Finding(CHECK, Severity.NOTE, stream.arn, text, advice)
        rows = [r for r in found.shards[stream.arn] if r.paused and not r.ended]
        if rows:
            names = abbreviate(row.key.shard_id for row in rows)
            text = f"paused: {names}{_why(rows[0].pause_reason)}"
            yield Finding(CHECK, Severity.NOTE, stream.arn, text, advice)


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""
