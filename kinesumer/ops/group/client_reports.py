"""Put in words what clients report: failures of user code, incidents, and fan-out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import counted, duration_text, first_three
from kinesumer.wire import rows
from kinesumer.wire.reports import read_failures, read_incidents

# By stream ARN and consumer: the apps with the numbers of their live clients.
LiveUses = Mapping[tuple[str, str], Counter[str]]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one stream in the last minute, in one or several clients."""

    clients: list[str]  # the ids of the clients that report them
    since: float  # seconds since 1970
    records_done: int
    calls: int
    failed_calls: int
    dead_letters: int
    skipped_records: int
    last_error: LastError | None
    text: str  # "94 % of calls fail, 616 dead letters in the last minute"

    @property
    def failing_share(self) -> float:
        """The share of the calls that failed, from 0 to 1."""
        return self.failed_calls / max(1, self.calls)

    def explain(self, now: float | None) -> str:
        """Return the last error, the counts, and who reports them for how long.

        ``now`` is in seconds since 1970; None if unknown.
        """
        about, text = f"reported by {first_three(self.clients)}", self.text
        if now is not None:
            about += f", for {_age(self.since, now)}"
        if (error := self.last_error) is not None:
            ago = "" if now is None else f", {_age(error.at, now)} ago"
            place = f"record {error.position} of {error.shard_id}"
            text = f"last {error.type} at {place}{ago}: {text}"
        return f"{text} ({about})"


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


def failures_of(
    members: Iterable[MemberRow], arn: str | None = None
) -> Failures | None:
    """Return the failures of one or all streams in all members; None without any."""
    found: dict[str, list[StreamFailures]] = {}
    for member in members:
        for one in read_failures(member.failures, member.streams):
            if arn in (None, one.stream_arn):
                found.setdefault(member.client_id, []).append(one)
    if not found:
        return None
    outcomes, reported = Outcomes(), list(chain.from_iterable(found.values()))
    for one in reported:
        outcomes = outcomes.plus(one.outcomes)
    errors = [one.error for one in reported if one.error is not None]
    return Failures(
        clients=list(found),
        since=min(one.since for one in reported),
        records_done=outcomes.done,
        calls=outcomes.calls,
        failed_calls=outcomes.failed,
        dead_letters=outcomes.letters,
        skipped_records=outcomes.skipped,
        last_error=max(errors, key=lambda error: error.at, default=None),
        text=_counts(outcomes),
    )


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
    found: list[tuple[str, Incident]]  # with the id of the client that reports it

    @property
    def _clients(self) -> str:
        return first_three(dict.fromkeys(client_id for client_id, _ in self.found))

    @property
    def subject(self) -> str:
        """The clients or the stream that the incidents concern, in words."""
        if not self.stream_arn:
            return self._clients
        return f"stream {stream_name(self.stream_arn)}"

    def text(self, now: float | None) -> str:
        """Return the last error, what it means, and who reports it for how long.

        ``now`` is in seconds since 1970; None if unknown.
        """
        incidents = [incident for _, incident in self.found]
        latest = max(incidents, key=lambda incident: incident.since)
        error = f"{latest.error}: " if latest.error else ""
        about = []
        shards = sorted({it.shard_id for it in incidents if it.shard_id})
        if shards:
            about.append(first_three(shards))
        if self.stream_arn:
            about.append(f"reported by {self._clients}")
        if now is not None:
            about.append(f"for {_age(min(it.since for it in incidents), now)}")
        count = sum(it.count for it in incidents)
        about.append("noted once" if count == 1 else f"noted {count:,} times")
        return f"{error}{self.kind.meaning} ({', '.join(about)})"


def group_incidents(members: Iterable[MemberRow]) -> list[IncidentGroup]:
    """Return the members' incidents by kind and stream; the worst kinds come first."""
    kinds = list(IncidentKind)
    found: dict[tuple[int, str], list[tuple[str, Incident]]] = defaultdict(list)
    for member in members:
        for incident in read_incidents(member.incidents, member.streams):
            key = kinds.index(incident.kind), incident.stream_arn
            found[key].append((member.client_id, incident))
    return [
        IncidentGroup(kinds[kind], arn, found[kind, arn]) for kind, arn in sorted(found)
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


# A client writes the time into its row every two minutes. If an app's last client was
# killed, no other client marks its row as dead, so an old time must end its use.
LIVE_SECONDS = 300.0


class PollingClient(msgspec.Struct, frozen=True):
    """A client that polls although it requests fan-out, and why."""

    client_id: str
    problem: str


class ConsumerUse(msgspec.Struct, frozen=True):
    """The live clients of an app that request a stream consumer of one stream."""

    consumer: str
    clients: list[str]  # the ids of the clients that read by fan-out
    polling: list[PollingClient]

    @property
    def text(self) -> str:
        """The use in words: "fan-out billing (1 client, 1 polls instead)"."""
        clients, polling = len(self.clients), len(self.polling)
        counts = [
            *([counted(clients, "client")] if clients else []),
            *([f"{polling} poll{'s' * (polling == 1)} instead"] if polling else []),
        ]
        return f"fan-out {self.consumer} ({', '.join(counts)})"

    def problems(self) -> Iterator[str]:
        """Yield why clients poll, with one text for all clients of the same problem."""
        clients: dict[str, list[str]] = defaultdict(list)
        for one in self.polling:
            clients[one.problem].append(one.client_id)
        for problem, ids in clients.items():
            names = first_three(ids)
            verb = "polls" if len(ids) == 1 else "poll"
            yield f"{names} {verb} instead of fan-out {self.consumer}: {problem}"


def uses_of_stream(members: Iterable[MemberRow], arn: str) -> list[ConsumerUse]:
    """Return how the members use each consumer of a stream, by the consumer's name."""
    found: dict[str, ConsumerUse] = {}
    for member in members:
        if (use := member.fan_out.get(arn)) is None:
            continue
        known = found.setdefault(use.consumer, ConsumerUse(use.consumer, [], []))
        if use.problem:
            known.polling.append(PollingClient(member.client_id, use.problem))
        else:
            known.clients.append(member.client_id)
    return [found[name] for name in sorted(found)]


async def read_live_uses(store: DynamoStateStore, now: float) -> LiveUses:
    """Read which apps request each consumer. ``now`` is in seconds since 1970."""
    clients: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in await store.scan(rows.member_key("", "").pk):
        # Only people see the result, so unreadable rows don't matter.
        for member in rows.parse_rows(rows.read_member, [row])[0]:
            at = rows.timestamp_seconds(member.last_update)
            if not member.dead and now - at <= LIVE_SECONDS:
                app = str(row["pk"]).removeprefix(rows.member_key("", "").pk)
                for arn, use in member.fan_out.items():
                    clients[arn, use.consumer][app] += 1
    return clients
