"""Add up the failures of user code that live clients report, and put them in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.model.failures import Outcomes
from kinesumer.runtime.text import abbreviate, counted, duration_text
from kinesumer.wire.failures import read_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.model.failures import LastError, StreamFailures
    from kinesumer.model.rows import MemberRow

MAX_NAMED = 3  # a text names at most this many clients


class Failures(NamedTuple):
    """The failures of one stream in the last minute, in one or several clients."""

    clients: tuple[str, ...]  # the ids of the clients that report them
    since: float  # seconds since 1970
    outcomes: Outcomes
    error: LastError | None  # the latest one

    @property
    def failing_share(self) -> float:
        """The share of the calls that failed, from 0 to 1."""
        return self.outcomes.failed / max(1, self.outcomes.calls)

    @property
    def failed_records(self) -> int:
        """The number of records that user code has not handled and will not."""
        return self.outcomes.letters + self.outcomes.skipped

    @property
    def counts(self) -> str:
        """The failures in words: "94 % of calls fail, 616 dead letters a minute"."""
        _, calls, failed, letters, skipped = self.outcomes
        percent = 100 * self.failing_share
        words = [
            *([f"{max(1, int(percent))} % of {calls:,} calls fail"] if failed else []),
            *([counted(letters, "dead letter")] if letters else []),
            *([counted(skipped, "skipped record")] if skipped else []),
        ]
        return f"{', '.join(words)} in the last minute"

    def text(self, now: float | None) -> str:
        """Return the last error, the counts, and who reports them for how long.

        ``now`` is in seconds since 1970; None if unknown.
        """
        about = f"reported by {abbreviate(self.clients, MAX_NAMED)}"
        if now is not None:
            about += f", for {_age(self.since, now)}"
        return f"{self._error_text(now)}{self.counts} ({about})"

    def _error_text(self, now: float | None) -> str:
        if self.error is None:
            return ""
        name, shard_id, position, at = self.error
        ago = "" if now is None else f", {_age(at, now)} ago"
        return f"last {name} at record {position} of {shard_id}{ago}: "

    def report(self) -> dict[str, Any]:
        """Return the failures as JSON."""
        done, calls, failed, letters, skipped = self.outcomes
        return {
            "clients": list(self.clients),
            "since": self.since,
            "records_done": done,
            "calls": calls,
            "failed_calls": failed,
            "dead_letters": letters,
            "skipped_records": skipped,
            "last_error": None if self.error is None else self.error._asdict(),
            "text": self.counts,
        }


def _age(at: float, now: float) -> str:
    return duration_text(1000 * max(0.0, now - at))


def failures_of_stream(members: Iterable[MemberRow], arn: str) -> Failures | None:
    """Return the failures of a stream in all members; None if there are none."""
    return _sum([it for it in _reported(members) if it[1].stream_arn == arn])


def failures_of_group(members: Iterable[MemberRow]) -> Failures | None:
    """Return the failures of all streams in all members; None if there are none."""
    return _sum(list(_reported(members)))


def failures_of_member(member: MemberRow) -> Failures | None:
    """Return the failures of all streams in a member; None if there are none."""
    return failures_of_group([member])


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
    return Failures(
        tuple(dict.fromkeys(client_id for client_id, _ in found)),
        min(one.since for _, one in found),
        outcomes,
        max(errors, key=lambda error: error.at, default=None),
    )
