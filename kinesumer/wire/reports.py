"""Code what a member reports in its row: loads of shards, incidents and failures.

Each is a short text, because DynamoDB bills a write for each started KB. A stream in a
text is an index into the sorted streams that the member requests. Times are in seconds
since 1970.

The text of loads is a head and entries. The head is ``LETTERS INDEX:ENTRIES …|``: with
how many letters an entry counts its shards, and how many entries each stream has. An
entry is the highest 18 bits of the first shard's starting hash key, in three letters;
the number of its shards less one, in two letters, or in none if each entry is of one
shard; the bytes and the records per second, in one letter each; and the handler's
seconds per second, in two. The rates are on logarithmic scales, in steps of 16 % with
one letter and of 0.3 % with two.

An incident is a line ``KIND SINCE COUNT PLACE ERROR``. PLACE is ``-`` for the client,
or a stream, and for a shard also ``/`` and the shard's id. ERROR may be missing.

The failures of a stream are a line ``STREAM SINCE DONE CALLS FAILED LETTERS SKIPPED``,
and, if there is a last error, ``TYPE AT SHARD POSITION``. The counts are those of the
last minute.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.model.reports import (
    LastError,
    Load,
    LoadReport,
    Outcomes,
    StreamFailures,
)
from kinesumer.model.rows import Row, Value
from kinesumer.model.streams import HASH_KEYS

WRITE_UNIT_BYTES = 1024  # DynamoDB's unit of writes
# The attributes of a member's row that heartbeats write if there is room for them.
REPORTS = ("load", "incidents", "failures")
# What a row may grow by until the next heartbeat: longer counters and ranges. It also
# covers the byte for each element of a set that some descriptions of DynamoDB count.
SLACK_BYTES = 64
# No version writes more letters than this into a text, not even loads: 60 entries of 9
# letters, and 12 letters for each of 60 streams. More would only take time.
MAX_READ_LETTERS = 4096
# A plan by load needs at least so many entries, even if they cost another write unit.
# 60 of 9 letters are about half of a unit, which leaves the rest to the row.
LEAST_ENTRIES, MAX_ENTRIES = 10, 60
KEY_SIZE, COUNT_SIZE, RATES_SIZE = 3, 2, 4
# The letters of hash keys and of rates; the value of a letter is its place.
KEY_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
RATE_LETTERS = "".join(map(chr, range(33, 127)))
KEY_UNIT = HASH_KEYS >> 6 * KEY_SIZE  # a letter has six bits
# A row holds a few incidents: one with a full error, or about four with short errors.
MAX_INCIDENT_BYTES = 240
# The room for two streams with their last errors, or for about eight without.
MAX_FAILURE_BYTES = 320
MAX_TYPE_LETTERS = 48  # chosen: few types of errors have longer names


class Scale(NamedTuple):
    """The logarithmic scale on which a rate is coded."""

    least: float  # lower rates are coded as 0
    decades: int
    letters: int

    @property
    def levels(self) -> int:
        """The number of levels, of which the first is 0."""
        return int(len(RATE_LETTERS) ** self.letters)

    @property
    def step(self) -> float:
        """The logarithm of the factor between two levels."""
        return self.decades * log(10) / (self.levels - 2)


# Of bytes, records and work per second. The least is a small record in half a minute,
# and six decades above are more than a shard accepts. With one letter, a step is 16 %.
# Work has two, because shares are compared by it, and handlers may be slow.
SCALES = Scale(30.0, 6, 1), Scale(0.03, 6, 1), Scale(1e-6, 9, 2)


def max_entries(room: int, streams: int, shards: int) -> int:
    """Return how many entries fit into ``room`` bytes of a text.

    The text names ``streams`` streams. If there are more ``shards`` than entries,
    entries must count their shards, and take more room.
    """
    room -= len("0|") + streams * len(f" {streams}:{MAX_ENTRIES}")
    single, counted = (
        max(0, min(MAX_ENTRIES, room // (KEY_SIZE + size + RATES_SIZE)))
        for size in (0, COUNT_SIZE)
    )
    return single if shards <= single else counted


def load_text(reports: Sequence[LoadReport], streams: frozenset[str]) -> str:
    """Return the stored text of reports of ``streams``, which are in order."""
    if not reports:
        return ""
    index = {arn: at for at, arn in enumerate(sorted(streams))}
    entries = Counter(index[report.stream_arn] for report in reports)
    size = COUNT_SIZE if any(report.shards > 1 for report in reports) else 0
    counts = "".join(f" {at}:{count}" for at, count in entries.items())
    return f"{size}{counts}|{''.join(_entry(report, size) for report in reports)}"


def _entry(report: LoadReport, size: int) -> str:
    first = report.first_hash // KEY_UNIT
    key = "".join(KEY_LETTERS[first >> shift & 63] for shift in (12, 6, 0))
    count = _letters(report.shards - 1, size)
    return key + count + "".join(map(_rate_text, report.load, SCALES))


def _letters(number: int, size: int) -> str:
    high, low = divmod(number, len(RATE_LETTERS))
    return (RATE_LETTERS[high] + RATE_LETTERS[low])[-size:] if size else ""


def _rate_text(rate: float, scale: Scale) -> str:
    level = (
        round(log(rate / scale.least) / scale.step) + 1 if rate >= scale.least else 0
    )
    return _letters(min(level, scale.levels - 1), scale.letters)


def read_loads(text: str, streams: frozenset[str]) -> list[LoadReport]:
    """Parse the stored text of loads. Return nothing if it is invalid."""
    # Loads only help to plan, so invalid ones are ignored.
    head = _HEAD.match(text) if len(text) <= MAX_READ_LETTERS else None
    if head is None:
        return []
    size, names = int(head[1]), sorted(streams)
    counts = [tuple(map(int, pair.split(":"))) for pair in head[2].split()]
    if any(index >= len(names) for index, _ in counts):
        return []
    letters = KEY_SIZE + size + RATES_SIZE
    body = text[head.end() :]
    # Compare the counts with the length before they are expanded.
    if len(body) != letters * sum(count for _, count in counts):
        return []
    if not _BODIES[size].fullmatch(body):
        return []
    arns = [names[index] for index, count in counts for _ in range(count)]
    return [
        _report(arn, body[letters * at : letters * (at + 1)])
        for at, arn in enumerate(arns)
    ]


_HEAD = re.compile(rf"([0{COUNT_SIZE}])((?: [0-9]{{1,6}}:[0-9]{{1,4}})+)\|", re.ASCII)
_BODIES = {
    size: re.compile(rf"(?:[\w-]{{3}}[!-~]{{{size + RATES_SIZE}}})*", re.ASCII)
    for size in (0, COUNT_SIZE)
}


def _report(arn: str, entry: str) -> LoadReport:
    first = 0
    for letter in entry[:KEY_SIZE]:
        first = first * len(KEY_LETTERS) + KEY_LETTERS.index(letter)
    count, rates = entry[KEY_SIZE:-RATES_SIZE], entry[-RATES_SIZE:]
    load = Load(*map(_rate, (rates[0], rates[1], rates[2:]), SCALES))
    return LoadReport(arn, first * KEY_UNIT, 1 + _number(count), load)


def _rate(text: str, scale: Scale) -> float:
    level = _number(text)
    return scale.least * exp((level - 1) * scale.step) if level else 0.0


def _number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * len(RATE_LETTERS) + RATE_LETTERS.index(letter)
    return number


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
    room, lines = min(room, MAX_INCIDENT_BYTES), list[tuple[str, str]]()
    for incident in _each_kind_first(known):
        head = _incident_head(incident, index)
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


def _incident_head(incident: Incident, index: dict[str, int]) -> str:
    place = str(index[incident.stream_arn]) if incident.stream_arn else "-"
    if incident.shard_id:
        place += f"/{incident.shard_id}"
    return f"{incident.kind.value} {incident.since:.0f} {incident.count} {place}"


def read_incidents(text: str, streams: frozenset[str]) -> list[Incident]:
    """Parse the stored text of incidents, without its invalid lines."""
    # Ignore lines of later versions, too. Only people read the result.
    names, found = sorted(streams), []
    for line in text[:MAX_READ_LETTERS].split("\n"):
        match = _INCIDENT.fullmatch(line)
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
_INCIDENT = re.compile(
    r"([a-z-]{1,32}) ([0-9]{1,10}) ([0-9]{1,12}) "
    r"(?:-|([0-9]{1,6})(?:/([\w.-]{1,128}))?)(?: (.+))?",
    re.ASCII,
)


def failures_text(
    failures: Sequence[StreamFailures], streams: frozenset[str], room: int
) -> str:
    """Return the stored text of the streams that fit into ``room`` bytes, in order.

    The first stream is written even without room, since failures must be seen. Last
    errors are written where there is room for them. Streams that aren't in ``streams``
    are left out.
    """
    index = {arn: at for at, arn in enumerate(sorted(streams))}
    room, lines = min(room, MAX_FAILURE_BYTES), list[str]()
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
        match = _FAILURE.fullmatch(line)
        if match is None or int(match[1]) >= len(names):
            continue
        stream, since, *counts = map(int, match.groups()[:7])
        name, at, shard_id, position = match.groups()[7:]
        error = LastError(name, shard_id, position, float(at)) if name else None
        outcomes = Outcomes(*counts)
        found.append(StreamFailures(names[stream], float(since), outcomes, error))
    return found


_FAILURE = re.compile(
    r"([0-9]{1,6}) ([0-9]{1,10})"
    + 5 * r" ([0-9]{1,12})"
    + r"(?: ([\w.?]{1,48}) ([0-9]{1,10}) ([\w.-]{1,128}) ([0-9:]{1,145}))?",
    re.ASCII,
)


def row_bytes(row: Row) -> int:
    """Return the size of a row as DynamoDB counts it."""
    return sum([len(name) + _value_bytes(value) for name, value in row.items()])


def room_bytes(row: Row) -> int:
    """Return the room for a member's reports in the last write unit of its row.

    A heartbeat then costs no more than the rest of the row costs anyway.
    """
    rest = {name: value for name, value in row.items() if name not in REPORTS}
    names = sum(map(len, REPORTS))
    return max(0, -row_bytes(rest) % WRITE_UNIT_BYTES - names - SLACK_BYTES)


def _value_bytes(value: Value) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return (len(str(abs(value))) + 1) // 2 + 1
    return sum(len(part.encode()) for part in value)
