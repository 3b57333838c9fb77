"""Add up the failures of user code that live clients report, and put them in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesumer.model.failures import Outcomes
from kinesumer.runtime.text import counted, duration_text, first_three
from kinesumer.wire.failures import read_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.model.failures import StreamFailures
    from kinesumer.model.rows import MemberRow


class ErrorReport(msgspec.Struct, frozen=True):
    """The last failure of a stream, without the error's text and the record's data."""

    type: str
    shard_id: str
    position: str
    at: float  # seconds since 1970


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one stream in the last minute, in one or several clients."""

    clients: list[str]  # the ids of the clients that report them
    since: float  # seconds since 1970
    records_done: int
    calls: int
    failed_calls: int
    dead_letters: int
    skipped_records: int
    last_error: ErrorReport | None
    text: str  # "94 % of calls fail, 616 dead letters in the last minute"

    @property
    def failing_share(self) -> float:
        """The share of the calls that failed, from 0 to 1."""
        return self.failed_calls / max(1, self.calls)

    def explain(self, now: float | None) -> str:
        """Return the last error, the counts, and who reports them for how long.

        ``now`` is in seconds since 1970; None if unknown.
        """
        about = f"reported by {first_three(self.clients)}"
        if now is not None:
            about += f", for {_age(self.since, now)}"
        return f"{self._error_text(now)}{self.text} ({about})"

    def _error_text(self, now: float | None) -> str:
        error = self.last_error
        if error is None:
            return ""
        ago = "" if now is None else f", {_age(error.at, now)} ago"
        place = f"record {error.position} of {error.shard_id}"
        return f"last {error.type} at {place}{ago}: "


def _counts(outcomes: Outcomes) -> str:
    _, calls, failed, letters, skipped = outcomes
    percent = 100 * failed / max(1, calls)
    words = [
        *([f"{max(1, int(percent))} % of {calls:,} calls fail"] if failed else []),
        *([counted(letters, "dead letter")] if letters else []),
        *([counted(skipped, "skipped record")] if skipped else []),
    ]
    return f"{', '.join(words)} in the last minute"


def _age(at: float, now: float) -> str:
    return duration_text(1000 * max(0.0, now - at))


def failures_of_stream(members: Iterable[MemberRow], arn: str) -> Failures | None:
    """Return the failures of a stream in all members; None if there are none."""
    return _sum([it for it in _reported(members) if it[1].stream_arn == arn])


def failures_of_group(members: Iterable[MemberRow]) -> Failures | None:
    """Return the failures of all streams in all members; None if there are none."""
    return _sum(list(_reported(members)))


def _reported(members: Iterable[MemberRow]) -> Iterator[tuple[str, StreamFailures]]:
    for member in members:
        for failures in read_failures(member.failures, member.streams):
            yield member.client_id, failures


def _sum(found: list[tuple[str, StreamFailures]]) -> Failures | None:
    if not found:
        return None
    outcomes = Outcomes()
    for _, one in found:
        outcomes = outcomes.plus(one.outcomes)
    errors = [one.error for _, one in found if one.error is not None]
    latest = max(errors, key=lambda error: error.at, default=None)
    return Failures(
        clients=list(dict.fromkeys(client_id for client_id, _ in found)),
        since=min(one.since for _, one in found),
        records_done=outcomes.done,
        calls=outcomes.calls,
        failed_calls=outcomes.failed,
        dead_letters=outcomes.letters,
        skipped_records=outcomes.skipped,
        last_error=None if latest is None else ErrorReport(*latest),
        text=_counts(outcomes),
    )
