"""Check members: rows that can't be parsed, stalled members, leaders and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.observation import stall_limit_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.model.rows import MemberRow

CHECK = "members"


def member_problems(seen: AppObservation) -> Iterator[Finding]:
    """Yield corrupt rows, a missing leader, and members with problems."""
    for text in seen.second.corrupt:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            "a row of the state store",
            text,
            "correct the attribute, or delete the row if it is unused; only the "
            "client or shard of this row is affected",
        )
    yield from _resetting(seen)
    yield from _no_client(seen)
    yield from _no_leader(seen)
    for member in seen.second.alive:
        yield from _of(member, seen.heartbeat_ages)


def _resetting(seen: AppObservation) -> Iterator[Finding]:
    if seen.first.resetting and seen.second.resetting:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            f"app {seen.app}",
            "a reset has begun and isn't complete: clients can't start",
            "run kinesumer reset again, unless another operator runs it now",
        )


def _no_client(seen: AppObservation) -> Iterator[Finding]:
    # The rows of the last crashed clients look alive, since no client fences them.
    if any(not _is_stalled(m, seen.heartbeat_ages) for m in seen.second.alive):
        return
    yield Finding(
        CHECK,
        Severity.CRITICAL if seen.second.streams else Severity.NOTE,
        f"app {seen.app}",
        "no client is alive: no records are read",
        "start clients before retention runs out",
    )


def _is_stalled(member: MemberRow, ages: Mapping[str, float]) -> bool:
    return ages.get(member.session, 0.0) > stall_limit_seconds(member)


def _no_leader(seen: AppObservation) -> Iterator[Finding]:
    if not seen.clients:
        return
    if seen.first.leader_id is None and seen.second.leader_id is None:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            f"app {seen.app}",
            f"no client has led for {seen.seconds:.0f} s, although clients are alive: "
            "no plan is made, and reshards aren't followed",
            "read the clients' logs: they can't write the leader's row, or can't parse "
            "it",
        )
    first, second = seen.first.leader, seen.second.leader
    if first and second and second.leader_epoch - first.leader_epoch > 1:
        yield Finding(
            CHECK,
            Severity.WARNING,
            f"app {seen.app}",
            f"the leader changed {second.leader_epoch - first.leader_epoch} times "
            f"within {seen.seconds:.0f} s",
            "look for clients that stall for seconds: a busy CPU, a blocked process, "
            "a suspended machine",
        )


def _of(member: MemberRow, ages: Mapping[str, float]) -> Iterator[Finding]:
    subject = f"client {member.client_id}"
    if _is_stalled(member, ages):
        yield Finding(
            CHECK,
            Severity.WARNING,
            subject,
            f"its heartbeat has been unchanged for {ages[member.session]:.1f} s: it "
            f"is stopped or dead, and fenced after {member.lease_ms / 1000:.0f} s",
            "nothing if it was killed, since others take over; else read its log",
        )
    if member.state == "degraded":
        yield Finding(
            CHECK,
            Severity.WARNING,
            subject,
            "it is degraded: it can't reach Kinesis, and other clients have its shards",
            "check its log, its network and its credentials",
        )
    if member.drained:
        yield Finding(
            CHECK,
            Severity.NOTE,
            subject,
            "an operator has drained it: it takes no shards",
            f"kinesumer drain {member.client_id} --undo, to let it take shards again",
        )


def operator_pauses(seen: AppObservation) -> Iterator[Finding]:
    """Yield the pauses of operators, during which lags grow."""
    snapshot = seen.second
    advice = "kinesumer resume, before retention runs out"
    if snapshot.group is not None and snapshot.group.paused:
        text = f"all streams are paused{_reason(snapshot.group.pause_reason)}"
        yield Finding(CHECK, Severity.NOTE, f"app {seen.app}", text, advice)
    for stream in snapshot.streams:
        if stream.paused:
            text = f"is paused{_reason(stream.pause_reason)}"
            yield Finding(CHECK, Severity.NOTE, stream.arn, text, advice)
        rows = [r for r in snapshot.shards[stream.arn] if r.paused and not r.ended]
        if rows:
            names = abbreviate(row.key.shard_id for row in rows)
            text = f"paused: {names}{_reason(rows[0].pause_reason)}"
            yield Finding(CHECK, Severity.NOTE, stream.arn, text, advice)


def _reason(reason: str) -> str:
    return f": {reason}" if reason else ""
