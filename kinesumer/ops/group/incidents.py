"""Collect the incidents that live clients report, and put them in words."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import duration_text, first_three
from kinesumer.wire.incidents import read_incidents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.incidents import Incident
    from kinesumer.model.rows import MemberRow


class IncidentReport(msgspec.Struct, frozen=True, kw_only=True):
    """A lasting failure that a client reports about itself."""

    kind: str
    stream_arn: str | None
    shard_id: str | None
    since: float  # seconds since 1970
    count: int
    error: str
    meaning: str
    remedy: str


class IncidentGroup(NamedTuple):
    """All incidents of one kind about one stream, or about clients themselves."""

    kind: IncidentKind
    stream_arn: str
    clients: tuple[str, ...]  # the ids of the clients that report them
    incidents: tuple[Incident, ...]

    @property
    def subject(self) -> str:
        """What the incidents concern, in words."""
        if not self.stream_arn:
            return first_three(self.clients)
        return f"stream {stream_name(self.stream_arn)}"

    def text(self, now: float | None) -> str:
        """Return the last error, what it means, and who reports it for how long.

        ``now`` is in seconds since 1970; None if unknown.
        """
        latest = max(self.incidents, key=lambda incident: incident.since)
        error = f"{latest.error}: " if latest.error else ""
        about = []
        shards = sorted({it.shard_id for it in self.incidents if it.shard_id})
        if shards:
            about.append(first_three(shards))
        if self.stream_arn:
            about.append(f"reported by {first_three(self.clients)}")
        if now is not None:
            seconds = max(0.0, now - min(it.since for it in self.incidents))
            about.append(f"for {duration_text(1000 * seconds)}")
        count = sum(it.count for it in self.incidents)
        about.append("noted once" if count == 1 else f"noted {count:,} times")
        return f"{error}{self.kind.meaning} ({', '.join(about)})"


def group_incidents(members: Iterable[MemberRow]) -> list[IncidentGroup]:
    """Return the members' incidents by kind and stream; the worst kinds come first."""
    found: dict[tuple[IncidentKind, str], list[tuple[str, Incident]]]
    found = defaultdict(list)
    for member in members:
        for incident in read_incidents(member.incidents, member.streams):
            key = incident.kind, incident.stream_arn
            found[key].append((member.client_id, incident))
    kinds = list(IncidentKind)
    order = sorted(found, key=lambda key: (kinds.index(key[0]), key[1]))
    return [
        IncidentGroup(
            *key,
            tuple(dict.fromkeys(client_id for client_id, _ in found[key])),
            tuple(incident for _, incident in found[key]),
        )
        for key in order
    ]


def incident_reports(member: MemberRow) -> list[IncidentReport]:
    """Return a member's incidents for a report."""
    return [
        IncidentReport(
            kind=incident.kind.value,
            stream_arn=incident.stream_arn or None,
            shard_id=incident.shard_id or None,
            since=incident.since,
            count=incident.count,
            error=incident.error,
            meaning=incident.kind.meaning,
            remedy=incident.kind.remedy,
        )
        for incident in read_incidents(member.incidents, member.streams)
    ]
