"""Check whether more than one fleet works under one app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.model.rows import QUERY
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.model.rows import MemberRow

CHECK = "fleets"


def split_fleet(seen: AppObservation) -> Iterator[Finding]:
    """Yield other programs, fleets without a common stream, and shared client ids."""
    subject = f"app {seen.app}"
    if seen.go_clients and seen.second.alive:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            subject,
            f"Kinesumer for Go uses it too: {abbreviate(seen.go_clients)}; it "
            "overwrites positions",
            "stop one of the fleets, or give this one another app name",
        )
    queries = [m for m in seen.second.alive if m.kind == QUERY]
    if queries and seen.clients:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            subject,
            "a Spark query and plain clients use it",
            "stop one side, or give it another app name",
        )
    groups = group_by_streams(seen.clients)
    if len(groups) > 1:
        fleets = "; ".join(
            f"{abbreviate(m.client_id for m in group)} consume "
            f"{abbreviate(sorted(stream_name(arn) for arn in _streams(group)))}"
            for group in groups
        )
        yield Finding(
            CHECK,
            Severity.WARNING,
            subject,
            f"{len(groups)} fleets that share no stream: {fleets}",
            "give each its own app name, unless they shall share one leader",
        )
    yield from _restarts(seen)


def group_by_streams(members: list[MemberRow]) -> list[list[MemberRow]]:
    """Return members in groups that share streams, directly or through others."""
    groups: list[list[MemberRow]] = []
    for member in members:
        near = [g for g in groups if _streams(g) & member.streams]
        groups = [g for g in groups if g not in near]
        groups.append([*(m for group in near for m in group), member])
    return groups


def _streams(group: list[MemberRow]) -> frozenset[str]:
    return frozenset().union(*(member.streams for member in group))


def _restarts(seen: AppObservation) -> Iterator[Finding]:
    before = {member.client_id: member for member in seen.first.members}
    for member in seen.second.alive:
        was = before.get(member.client_id)
        if was is not None and was.session != member.session:
            # Any deploy restarts clients once under the same ids.
            often = member.incarnation - was.incarnation > 1
            yield Finding(
                CHECK,
                Severity.WARNING if often else Severity.NOTE,
                f"client {member.client_id}",
                f"it registered again within {seen.seconds:.0f} s (incarnation "
                f"{was.incarnation}, then {member.incarnation})",
                "if it wasn't restarted just now, it crashes repeatedly, or two "
                "processes use one client id: give each its own",
            )
