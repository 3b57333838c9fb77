"""Find what one look at a group shows to be wrong, for ``status`` and the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from kinesumer.model.streams import stream_name
from kinesumer.ops.group.client_reports import (
    failures_of,
    group_incidents,
    uses_of_stream,
)
from kinesumer.ops.group.observation import FleetView
from kinesumer.runtime.text import first_three


class Severity(IntEnum):
    """The severity of a finding; its value is the command's exit status."""

    NOTE = 0  # no action is required
    WARNING = 3  # the app works, but not well, or may soon fail
    CRITICAL = 4  # records are unread or lost, or soon will be

    @property
    def label(self) -> str:
        """The severity in a report."""
        return self.name.lower()


class Finding(NamedTuple):
    """A problem, its subject, and what to do."""

    check: str
    severity: Severity
    subject: str
    text: str
    advice: str


class Check(str):
    """A named check, which creates findings."""

    __slots__ = ()

    def note(self, subject: str, text: str, advice: str) -> Finding:
        """Return a finding that requires no action."""
        return Finding(self, Severity.NOTE, subject, text, advice)

    def warning(self, subject: str, text: str, advice: str) -> Finding:
        """Return a finding about a part that doesn't work well."""
        return Finding(self, Severity.WARNING, subject, text, advice)

    def critical(self, subject: str, text: str, advice: str) -> Finding:
        """Return a finding about unread or lost records."""
        return Finding(self, Severity.CRITICAL, subject, text, advice)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the highest severity; NOTE if there are no findings."""
    return max((finding.severity for finding in findings), default=Severity.NOTE)


FAILURES, INCIDENTS = Check("failures"), Check("incidents")
MEMBERS, POISON_RECORDS = Check("members"), Check("poison records")
FAN_OUT = Check("fan-out")
# From this share of failing calls on, most records aren't handled.
CRITICAL_SHARE = 0.5


def find_problems(fleet: FleetView, app: str) -> Iterator[Finding]:
    """Yield what clients report, which of them don't work, and which shards stop."""
    yield from _reported_incidents(fleet)
    yield from _failing_handlers(fleet)
    yield from _failing_members(fleet)
    yield from _poison_records(fleet, app)
    yield from _polling_clients(fleet)


def _reported_incidents(fleet: FleetView) -> Iterator[Finding]:
    for group in group_incidents(fleet.snapshot.alive):
        is_critical = group.kind.about.is_critical
        find = INCIDENTS.critical if is_critical else INCIDENTS.warning
        text, subject = group.text(fleet.snapshot.read_at), group.stream_arn
        yield find(subject or group.subject, text, group.kind.remedy)


def _failing_handlers(fleet: FleetView) -> Iterator[Finding]:
    for stream in fleet.snapshot.streams:
        failures = failures_of(fleet.snapshot.alive, stream.arn)
        if failures is None:
            continue
        advices = (
            (failures.failed_calls, "fix what the error names; the log has its text"),
            (failures.dead_letters, "kinesumer dlq redrive repeats dead letters"),
            (failures.skipped_records, "correct the producer, or decode="),
        )
        is_critical = failures.failing_share >= CRITICAL_SHARE
        yield Finding(
            FAILURES,
            Severity.CRITICAL if is_critical else Severity.WARNING,
            stream.arn,
            failures.explain(fleet.snapshot.read_at),
            "; ".join(text for count, text in advices if count),
        )


def _failing_members(fleet: FleetView) -> Iterator[Finding]:
    for member in fleet.snapshot.alive:
        subject = f"client {member.client_id}"
        if fleet.is_stalled(member):
            yield MEMBERS.warning(
                subject,
                f"its heartbeat has been unchanged for {fleet.age(member):.1f} s: it "
                f"is stopped or dead, and fenced after {member.lease_ms / 1000:.0f} s",
                "nothing if it was killed, because others take over; otherwise read "
                "its log",
            )
        if member.state == "degraded":
            yield MEMBERS.warning(
                subject,
                "it is degraded: it can't reach Kinesis, and other clients have its "
                "shards",
                "check its log, its network and its credentials",
            )


def _poison_records(fleet: FleetView, app: str) -> Iterator[Finding]:
    for arn, page in fleet.snapshot.shards.items():
        isolated = []
        for row in page:
            poison, shard_id = row.poison, row.key.shard_id
            if poison is not None:
                yield POISON_RECORDS.critical(
                    arn,
                    f"record {poison.text} of {shard_id} killed the processes that "
                    "received it; without a dead-letter target, the shard stops",
                    f"kinesumer seek --app {app} --stream {stream_name(arn)} --shard "
                    f"{shard_id} --to {poison.text} skips the record; read it first "
                    "with kinesumer tail, or give run() dead_letters=",
                )
            elif row.is_isolated:
                isolated.append(shard_id)
        if isolated:
            are = "is" if len(isolated) == 1 else "are"
            yield POISON_RECORDS.warning(
                arn,
                f"{first_three(isolated)} {are} read in isolation, because owners "
                "died repeatedly at the same position",
                "read the log of the processes that died; isolation ends by itself "
                "when the records are done, or when two more deaths name one of them",
            )


def _polling_clients(fleet: FleetView) -> Iterator[Finding]:
    for stream in fleet.snapshot.streams:
        for use in uses_of_stream(fleet.snapshot.alive, stream.arn):
            for problem in use.problems():
                yield FAN_OUT.warning(
                    stream.arn,
                    problem,
                    "remove the cause; the clients try fan-out again every few minutes",
                )
