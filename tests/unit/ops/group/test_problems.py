"""Test what one look at a group shows to be wrong, in the doctor and in ``status``."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths
from kinesumer.model.streams import FanOutUse
from kinesumer.ops.group.doctor.runner import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.problems import Severity, find_problems
from kinesumer.ops.group.status import report
from tests.support.doctor import ARN, app, check_finding, member, row, snapshot

FAILING = "0 820 6 100 94 616 0 PaymentError 996 shardId-3 4959"
ISOLATED = Deaths(3, 1000.0, Position("70"))
NAMED = Deaths(5, 1000.0, None, Position("71"), Position("71", 3))
DENIED = "access denied: kinesis:SubscribeToShard"
POLLING = {ARN: FanOutUse("billing", DENIED)}
WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL


def fleet(*members: Any, **deaths: Deaths) -> FleetView:
    """Return a group of these members, and of shards whose owners died so often."""
    rows = [
        row(number, position=Position("69"), deaths=each)
        for number, each in enumerate(deaths.values())
    ]
    return FleetView(snapshot(rows, members), {"session of silent": 7.0})


@pytest.mark.parametrize(
    ("seen", "severity", "text"),
    [
        (
            fleet(member("a", failures=FAILING)),
            CRITICAL,
            "616 dead letters in the last minute (reported by a) → fix what the error "
            "names; the log has its text; kinesumer dlq redrive repeats dead letters",
        ),
        (fleet(member("a", failures="0 900 99 100 49 0 0")), WARNING, "49 % of 100"),
        (fleet(member("a", failures="0 900 99 0 0 9 0")), WARNING, "dlq redrive"),
        (fleet(member("a", failures="0 900 99 0 0 0 9")), WARNING, "correct the pro"),
        (
            fleet(member("silent")),
            WARNING,
            "client silent: its heartbeat has been",
        ),
        (fleet(member("a", state="degraded")), WARNING, "client a: it is degraded: it"),
        (fleet(one=ISOLATED), WARNING, "shardId-0 is read in isolation, because"),
        (
            fleet(one=ISOLATED, other=ISOLATED),
            WARNING,
            "shardId-0, shardId-1 are read in isolation",
        ),
        (
            fleet(one=NAMED),
            CRITICAL,
            "record 71:3 of shardId-0 killed the processes that received it; without "
            "a dead-letter target, the shard stops → kinesumer seek --app billing "
            "--stream orders --shard shardId-0 --to 71:3 skips the record",
        ),
        (
            fleet(*(member(name, fan_out=POLLING) for name in "bd")),
            WARNING,
            f"{ARN}: b, d poll instead of fan-out billing: {DENIED}",
        ),
    ],
)
def test_each_problem_is_found_and_told_by_status(
    seen: FleetView, severity: Severity, text: str
) -> None:
    check_finding(find_problems(seen, "billing"), severity, text)
    [finding] = find_problems(seen, "billing")
    told = report("billing", "table", seen).problems
    assert any(line.endswith(f": {finding.text}") for line in told)


@pytest.mark.parametrize("kind", IncidentKind)
def test_an_incident_is_told_with_its_meaning_and_what_to_do(
    kind: IncidentKind,
) -> None:
    seen = fleet(member("a", incidents=f"{kind.value} 1000 3 0 an error"))
    severity = CRITICAL if kind.about.is_critical else WARNING
    text = f"an error: {kind.meaning} (reported by a, noted 3 times)"
    check_finding(find_problems(seen, "a"), severity, f"{text} → {kind.remedy}")
    told = f"stream orders: {text} {kind.remedy}"
    assert report("a", "table", seen).problems == [told]


@pytest.mark.parametrize(
    "seen",
    [
        fleet(member("a"), member("b", fan_out={ARN: FanOutUse("billing")})),
        fleet(one=Deaths(2, 1000.0, Position("70"))),
    ],
    ids=["healthy", "two deaths"],
)
def test_other_groups_have_no_problem(seen: FleetView) -> None:
    assert list(find_problems(seen, "billing")) == []


def test_a_record_that_was_passed_is_no_poison_and_an_ended_shard_has_none() -> None:
    named = row(0, position=Position("72"), deaths=NAMED)
    # Its owner forgets the deaths soon; until then the shard is read in isolation.
    passed = FleetView(snapshot([named]))
    check_finding(find_problems(passed, "billing"), WARNING, "in isolation")
    ended = FleetView(snapshot([named._replace(ended=True)]))
    assert list(find_problems(ended, "billing")) == []


def test_the_doctor_finds_them_too() -> None:
    observed = app(second=snapshot(members=[member("a", state="degraded")]))
    found = [
        finding.text for check in APP_CHECK_FUNCTIONS for finding in check(observed)
    ]
    assert any("it is degraded" in text for text in found)
