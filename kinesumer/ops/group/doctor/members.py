"""Check members: stalled members, leaders, pauses, and fleets that share an app."""

from __future__ import annotations

from collections.abc import Iterator

from kinesumer.model.rows import QUERY, MemberRow
from kinesumer.model.streams import stream_name
from kinesumer.ops.group.doctor.observation import AppObservation
from kinesumer.ops.group.problems import MEMBERS, Check, Finding, Severity
from kinesumer.runtime.text import first_three

FLEETS, PLAN = Check("fleets"), Check("plan")


def member_problems(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about corrupt rows, a missing leader, and single members."""
    for text in app.second.corrupt:
        yield MEMBERS.critical(
            "a row of the state store",
            text,
            "correct the attribute, or delete the row if nothing uses it; only the "
            "client or shard of this row is affected",
        )
    if app.first.resetting and app.second.resetting:
        yield MEMBERS.critical(
            app.subject,
            "a reset has begun and isn't complete: clients can't start",
            "run kinesumer reset again, unless another operator runs it now",
        )
    # If all clients have crashed, none is left to mark the rows dead, so the rows alone
    # look alive.
    if all(map(app.fleet.is_stalled, app.second.alive)):
        yield Finding(
            MEMBERS,
            Severity.CRITICAL if app.second.streams else Severity.NOTE,
            app.subject,
            "no client is alive: no records are read",
            "start clients before retention runs out",
        )
    if app.clients:
        yield from _leader_problems(app)
    for member in app.second.alive:
        if member.drained:
            yield MEMBERS.note(
                f"client {member.client_id}",
                "an operator has drained it: it takes no shards",
                f"kinesumer drain {member.client_id} --undo, to let it take shards "
                "again",
            )


def _leader_problems(app: AppObservation) -> Iterator[Finding]:
    if app.first.leader_id is None and app.second.leader_id is None:
        yield MEMBERS.critical(
            app.subject,
            f"no client has led for {app.seconds:.0f} s, although clients are alive: "
            "no plan is made, and reshards aren't followed",
            "read the clients' logs: they can't write the leader's row, or can't parse "
            "it",
        )
    first, second = app.first.leader, app.second.leader
    if first and second and (count := second.leader_epoch - first.leader_epoch) > 1:
        yield MEMBERS.warning(
            app.subject,
            f"the leader changed {count} times within {app.seconds:.0f} s",
            "look for clients that stall for seconds: a busy CPU, a blocked process, "
            "a suspended machine",
        )


def waiting_plans(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about clients without a plan, and about a plan that waits."""
    before = {member.session for member in app.first.alive if member.range is None}
    waiting = [
        member.client_id
        for member in app.second.assignable
        if member.range is None and member.session in before
    ]
    if waiting:
        yield PLAN.warning(
            app.subject,
            f"{first_three(waiting)} got no plan for {app.seconds:.0f} s",
            "nothing if they have just started; otherwise read the leader's log: it "
            "can't write the table, or can't list the shards of a stream",
        )
    if app.fleet.plan.waits:
        yield PLAN.note(
            app.subject,
            app.fleet.plan.reasons[0],
            "wait: the leader waits for a minute at most, and clients "
            "measure their load within some seconds",
        )


def operator_pauses(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about pauses by operators; lags grow during a pause."""

    def found(subject: str, text: str, reason: str) -> Finding:
        text += f": {reason}" if reason else ""
        return MEMBERS.note(
            subject, text, "kinesumer resume, before retention runs out"
        )

    group = app.second.group
    if group is not None and group.paused:
        yield found(app.subject, "all streams are paused", group.pause_reason)
    for stream in app.second.streams:
        if stream.paused:
            yield found(stream.arn, "is paused", stream.pause_reason)
        rows = [r for r in app.second.shards[stream.arn] if r.paused and not r.ended]
        if rows:
            names = first_three(row.key.shard_id for row in rows)
            yield found(stream.arn, f"paused: {names}", rows[0].pause_reason)


def split_fleet(app: AppObservation) -> Iterator[Finding]:
    """Yield findings if other programs or separate fleets use the app or client ids."""
    if app.go_clients and app.second.alive:
        yield FLEETS.critical(
            app.subject,
            f"Kinesumer for Go uses it too: {first_three(app.go_clients)}; it "
            "overwrites positions",
            "stop one of the fleets, or give this one another app name",
        )
    if app.clients and any(member.kind == QUERY for member in app.second.alive):
        yield FLEETS.critical(
            app.subject,
            "a Spark query and other clients use it",
            "stop one side, or give it another app name",
        )
    groups = _group_by_streams(app.clients)
    if len(groups) > 1:
        fleets = "; ".join(
            f"{first_three(m.client_id for m in group)} consume "
            f"{first_three(sorted(stream_name(arn) for arn in _streams(group)))}"
            for group in groups
        )
        yield FLEETS.warning(
            app.subject,
            f"{len(groups)} fleets that share no stream: {fleets}",
            "give each its own app name, unless they should share one leader",
        )
    yield from _restarts(app)


def _group_by_streams(members: list[MemberRow]) -> list[list[MemberRow]]:
    """Group the members that share streams, directly or through other members."""
    groups: list[list[MemberRow]] = []
    for member in members:
        near = [g for g in groups if _streams(g) & member.streams]
        groups = [g for g in groups if g not in near]
        groups.append([*(m for group in near for m in group), member])
    return groups


def _streams(group: list[MemberRow]) -> frozenset[str]:
    return frozenset().union(*(member.streams for member in group))


def _restarts(app: AppObservation) -> Iterator[Finding]:
    before = {member.client_id: member for member in app.first.members}
    for member in app.second.alive:
        was = before.get(member.client_id)
        if was is not None and was.session != member.session:
            # A deploy restarts a client once under its id; more restarts are a problem.
            often = member.incarnation - was.incarnation > 1
            yield (FLEETS.warning if often else FLEETS.note)(
                f"client {member.client_id}",
                f"it registered again within {app.seconds:.0f} s (incarnation "
                f"{was.incarnation}, then {member.incarnation})",
                "if it wasn't restarted just now, it crashes repeatedly, or two "
                "processes use one client id: give each its own",
            )
