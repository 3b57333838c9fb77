"""Code a client's failures as a short text in its member's row.

Each line is ``STREAM SINCE DONE CALLS FAILED LETTERS SKIPPED``, and, if there is a
last error, ``TYPE AT SHARD POSITION``. STREAM is an index into the sorted streams that
the member requests. The counts are those of the last minute. SINCE and AT are in
seconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.wire.fields import MAX_READ_LETTERS

# The room for two streams with their last errors, or for about eight without.
MAX_BYTES = 320
MAX_TYPE_LETTERS = 48


def failures_text(
    failures: Sequence[StreamFailures], streams: frozenset[str], room: int
) -> str:
    """Return the stored text of the streams that fit into ``room`` bytes, in order.

    The first stream is written even without room, since failures must be seen. Last
    errors are written where there is room for them. Streams that aren't in ``streams``
    are left out.
    """
    index = {arn: at for at, arn in enumerate(sorted(streams))}
    room, lines = min(room, MAX_BYTES), list[str]()
    for failure in failures:
        if failure.stream_arn not in index:
            continue
        counts = " ".join(map(str, failure.outcomes))
        line = f"{index[failure.stream_arn]} {failure.since:.0f} {counts}"
        full = line + _error_text(failure.error)
        if len(full) < room:
            line = full
        elif lines and len(line) >= room:
            break
        room -= len(line) + 1
        lines.append(line)
    return "\n".join(lines)


def _error_text(error: LastError | None) -> str:
    if error is None:
        return ""
    # Names of classes may have any letters.
    name = re.sub(r"[^\w.]", "?", error.type, flags=re.ASCII)[:MAX_TYPE_LETTERS]
    return f" {name} {error.at:.0f} {error.shard_id} {error.position}"


def read_failures(text: str, streams: frozenset[str]) -> list[StreamFailures]:
    """Parse the stored text of failures, without its invalid lines."""
    # Only people read the result, and a later version may write other lines.
    names, found = sorted(streams), []
    for line in text[:MAX_READ_LETTERS].split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) >= len(names):
            continue
        stream, since, *counts = map(int, match.groups()[:7])
        name, at, shard_id, position = match.groups()[7:]
        error = LastError(name, shard_id, position, float(at)) if name else None
        outcomes = Outcomes(*counts)
        found.append(StreamFailures(names[stream], float(since), outcomes, error))
    return found


_LINE = re.compile(
    r"([0-9]{1,6}) ([0-9]{1,10})"
    + 5 * r" ([0-9]{1,12})"
    + r"(?: ([\w.?]{1,48}) ([0-9]{1,10}) ([\w.-]{1,128}) ([0-9:]{1,145}))?",
    re.ASCII,
)
