"""Report the lasting failures that clients have noticed about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ops.group.doctor.finding import Check, Finding
from kinesumer.ops.group.incidents import group_incidents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.ops.group.doctor.observation import AppObservation

INCIDENTS = Check("incidents")


def reported_incidents(app: AppObservation) -> Iterator[Finding]:
    """Yield a finding for each kind of incident of a stream, or of clients."""
    for group in group_incidents(app.second.alive):
        is_critical = group.kind.about.is_critical
        find = INCIDENTS.critical if is_critical else INCIDENTS.warning
        text, subject = group.text(app.second.read_at), group.stream_arn
        yield find(subject or group.subject, text, group.kind.remedy)
