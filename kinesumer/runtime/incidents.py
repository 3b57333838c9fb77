"""Log each incident of a client once, and keep it until it ends."""

from __future__ import annotations

import threading

from kinesumer.core.failures import IncidentTracker, Subject
from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.model.streams import stream_name
from kinesumer.ports import Clock
from kinesumer.runtime.failure_log import logger


class IncidentLog:
    """The incidents of one client or producer. Any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tracker = IncidentTracker()
        self._lock = threading.Lock()

    def note(
        self,
        kind: IncidentKind,
        *,
        stream_arn: str = "",
        shard_id: str = "",
        error: object = "",
    ) -> None:
        """Note a failure of a shard, a stream, or the client itself.

        Call this beside each warning. Several notes within a minute begin an incident.
        ``error`` is shortened, and must not contain data of records.
        """
        subject = Subject(kind, stream_arn, shard_id)
        now, wall = self._clock.now(), self._clock.wall()
        with self._lock:
            begun = self._tracker.note(subject, str(error), now, wall)
        if begun is not None:
            logger.error(
                "%s: %s %s%s",
                begun.subject,
                kind.meaning,
                kind.remedy,
                f" Last error: {begun.error}" if begun.error else "",
                extra=_fields(begun),
            )

    def note_credentials(self, trouble: str) -> None:
        """Note what is wrong with the credentials; an empty text if nothing is."""
        if trouble:
            self.note(IncidentKind.CREDENTIALS, error=trouble)
        else:
            self.resolve(IncidentKind.CREDENTIALS)

    def resolve(
        self, kind: IncidentKind, *, stream_arn: str = "", shard_id: str = ""
    ) -> None:
        """End an incident, because the cause is gone. Do nothing without one."""
        with self._lock:
            ended = self._tracker.resolve(Subject(kind, stream_arn, shard_id))
        if ended is not None:
            self._log_end(ended)

    def current(self) -> list[Incident]:
        """End the incidents that have not been noted for a while; return the others."""
        with self._lock:
            ended = self._tracker.expire(self._clock.now())
            found = self._tracker.current()
        for incident in ended:
            self._log_end(incident)
        return found

    def _log_end(self, incident: Incident) -> None:
        logger.warning(
            "%s: the incident %r is over after %.0f s",
            incident.subject,
            incident.kind.value,
            self._clock.wall() - incident.since,
            extra=_fields(incident),
        )


def _fields(incident: Incident) -> dict[str, object]:
    fields: dict[str, object] = {"incident": incident.kind.value}
    if incident.stream_arn:
        fields["stream"] = stream_name(incident.stream_arn)
    if incident.shard_id:
        fields["shard_id"] = incident.shard_id
    return fields | {"error": incident.error}
