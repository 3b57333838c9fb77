"""What is to be said of one stored position, by what stands there in the shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model import Position
from kinesumer.operations.doctor.finding import Severity
from kinesumer.operations.peeking import Found

if TYPE_CHECKING:
    from kinesumer.operations.peeking import Peek


class Verdict(NamedTuple):
    """A name for what was found, how bad it is, and the same in words."""

    name: str
    severity: Severity
    text: str = ""


UNCHECKED = "unchecked"
ENDED = Verdict("ended", Severity.NOTE)
NOT_STARTED = Verdict("not started", Severity.NOTE)
THERE = Verdict("there", Severity.NOTE)
QUIET = Verdict(
    "quiet",
    Severity.NOTE,
    "its record has expired, and nothing has arrived since",
)
EXPIRED = Verdict(
    "expired",
    Severity.WARNING,
    "retention has passed its record: unless the shard was quiet then, records after "
    "it are lost; clients go on with the oldest that is left",
)
UNKNOWN = Verdict(
    "unknown",
    Severity.WARNING,
    "no record has this number, though older ones are there: it wasn't stored by "
    "reading; clients go on with the next one",
)
BEYOND = Verdict(
    "beyond the tip",
    Severity.CRITICAL,
    "it lies after all records of the shard: what arrives up to it won't be read; seek "
    "to where reading shall go on",
)
FOREIGN = Verdict(
    "refused",
    Severity.CRITICAL,
    "Kinesis says that it was never in this shard: clients stop there; seek to where "
    "reading shall go on",
)
GONE = Verdict(
    "gone",
    Severity.CRITICAL,
    "retention has passed the whole shard before it was read to its end",
)
PARTS = Verdict(
    "beyond the aggregate",
    Severity.CRITICAL,
    "its sub-sequence number is more than the aggregate at it holds",
)


def judge(position: Position, seen: Peek, oldest: str | None) -> Verdict:
    """Return what a look at a position means.

    ``oldest`` is the first sequence number that the shard has left.
    """
    if seen.found is Found.GONE:
        return GONE
    if seen.found is Found.FOREIGN:
        return FOREIGN
    if seen.found is Found.EXPIRED:
        return EXPIRED
    if seen.first == position.sequence_number:
        part = position.sub_sequence_number
        outside = part is not None and (seen.parts is None or part >= seen.parts)
        return PARTS if outside else THERE
    if oldest is None:
        return QUIET
    older = Position(oldest) < Position(position.sequence_number)
    if seen.first is None:
        return BEYOND if older else QUIET
    return UNKNOWN if older else EXPIRED
