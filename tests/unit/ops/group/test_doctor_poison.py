"""Test what reports say about shards in isolation, and about poison records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths
from kinesumer.ops.group.doctor.finding import Severity
from kinesumer.ops.group.doctor.poison import poison_records
from kinesumer.ops.group.doctor.runner import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from tests.support.doctor import ARN, app, check_finding, row, snapshot

if TYPE_CHECKING:
    from kinesumer.model.rows import ShardRow

TWICE = Deaths(2, 1000.0, Position("70"))
ISOLATED = Deaths(3, 1000.0, Position("70"))
NAMED = Deaths(5, 1000.0, None, Position("71"), Position("71", 3))


def dying(number: int, deaths: Deaths, **more: Any) -> ShardRow:
    return row(number, position=Position("69"), deaths=deaths, **more)


def findings(*rows: ShardRow) -> list[Any]:
    return list(poison_records(app(second=snapshot(rows))))


def problems(*rows: ShardRow) -> list[str]:
    found: list[str] = report("app", "table", FleetView(snapshot(rows))).problems
    return [text for text in found if "isolation" in text or "kills" in text]


def test_the_doctor_checks_for_poison_records() -> None:
    assert poison_records in APP_CHECK_FUNCTIONS


def test_two_deaths_are_no_problem() -> None:
    assert (findings(dying(0, TWICE)), problems(dying(0, TWICE))) == ([], [])


def test_shards_in_isolation_are_a_warning() -> None:
    check_finding(
        findings(dying(0, ISOLATED)), Severity.WARNING, "shardId-0 is read in isolation"
    )
    both = [dying(0, ISOLATED), dying(1, ISOLATED)]
    check_finding(
        findings(*both), Severity.WARNING, "shardId-0, shardId-1 are read in isolation"
    )
    assert problems(both[0]) == [
        "stream orders: shardId-0 is read in isolation, one record at a time, because "
        "owners died repeatedly at the same position"
    ]
    assert "shardId-0, shardId-1 are read" in problems(*both)[0]


def test_a_poison_record_is_critical_and_the_advice_skips_it() -> None:
    [finding] = findings(dying(0, NAMED))
    assert (finding.severity, finding.subject) == (Severity.CRITICAL, ARN)
    assert finding.text.startswith("record 71:3 of shardId-0 killed the processes")
    assert (
        "seek --app billing --stream orders --shard shardId-0 --to 71:3"
        in finding.advice
    )
    [problem] = problems(dying(0, NAMED))
    assert problem.startswith("stream orders: shardId-0 stops at record 71:3")


def test_a_stopped_shard_and_one_in_isolation_are_two_findings() -> None:
    severities = [f.severity for f in findings(dying(0, NAMED), dying(1, ISOLATED))]
    assert severities == [Severity.CRITICAL, Severity.WARNING]


def test_a_record_that_was_passed_is_no_problem() -> None:
    passed = dying(0, NAMED)._replace(position=Position("72"))
    [finding] = findings(passed)
    # Its owner forgets the deaths soon; until then the shard is read in isolation.
    assert finding.severity == Severity.WARNING
    ended = dying(0, NAMED, ended=True)
    assert (findings(ended), problems(ended)) == ([], [])


def test_status_shows_isolation_and_the_record() -> None:
    rows = [dying(0, NAMED), dying(1, ISOLATED), dying(2, TWICE)]
    [stream] = report("app", "table", FleetView(snapshot(rows))).streams
    assert [(s.isolated, s.poison) for s in stream.shards] == [
        (True, "71:3"),
        (True, None),
        (False, None),
    ]
