"""Code a client's incidents as a short text in its member's row.

Each line is ``KIND SINCE COUNT PLACE ERROR``. SINCE is in seconds since 1970. PLACE is
``-`` for the client itself, or the index of a stream in the sorted streams that the
member requests, and for a shard also ``/`` and the shard's id. ERROR may be missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.wire.fields import MAX_READ_LETTERS

# A row holds a few incidents: one with a full error, or about four with short errors.
MAX_BYTES = 240


def incidents_text(
    incidents: Sequence[Incident], streams: frozenset[str], room: int
) -> str:
    """Return the stored text of the incidents that fit into ``room`` bytes.

    The first of each kind come first, so that no kind hides another. The very first
    one is written even without room, since an incident is rare and must be seen.
    Incidents of streams that aren't in ``streams`` are left out.
    """
    index = {arn: at for at, arn in enumerate(sorted(streams))}
    known = [it for it in incidents if not it.stream_arn or it.stream_arn in index]
    room, lines = min(room, MAX_BYTES), list[tuple[str, str]]()
    for incident in _each_kind_first(known):
        head = _head(incident, index)
        size = len(head.encode()) + 1
        if lines and size > room:
            break
        room -= size
        lines.append((head, incident.error))
    texts = []
    for head, error in lines:
        cut = f" {error}".encode()[: max(0, room)].decode(errors="ignore")
        room -= len(cut.encode())
        texts.append((head + cut).rstrip())
    return "\n".join(texts)


def _each_kind_first(incidents: Sequence[Incident]) -> list[Incident]:
    seen: Counter[IncidentKind] = Counter()
    ranks = []
    for incident in incidents:
        ranks.append(seen[incident.kind])
        seen[incident.kind] += 1
    order = sorted(range(len(incidents)), key=ranks.__getitem__)
    return [incidents[at] for at in order]


def _head(incident: Incident, index: dict[str, int]) -> str:
    place = str(index[incident.stream_arn]) if incident.stream_arn else "-"
    if incident.shard_id:
        place += f"/{incident.shard_id}"
    return f"{incident.kind.value} {incident.since:.0f} {incident.count} {place}"


def read_incidents(text: str, streams: frozenset[str]) -> list[Incident]:
    """Parse the stored text of incidents, without its invalid lines."""
    # Ignore lines of later versions, too. Only people read the result.
    names, found = sorted(streams), []
    for line in text[:MAX_READ_LETTERS].split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in _KINDS:
            continue
        kind, since, count, stream, shard_id, error = match.groups("")
        if stream and int(stream) >= len(names):
            continue
        arn = names[int(stream)] if stream else ""
        at = float(since)
        found.append(Incident(_KINDS[kind], arn, shard_id, at, int(count), error))
    return found


_KINDS = {kind.value: kind for kind in IncidentKind}
_LINE = re.compile(
    r"([a-z-]{1,32}) ([0-9]{1,10}) ([0-9]{1,12}) "
    r"(?:-|([0-9]{1,6})(?:/([\w.-]{1,128}))?)(?: (.+))?",
    re.ASCII,
)
