"""Test the report of ``status``, and the problems that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths, GroupRow, LeaderRow
from kinesumer.model.streams import FanOutUse
from kinesumer.ops.group.doctor import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.lag import NO_LAGS, Lags
from kinesumer.ops.group.observation import FleetView, observe
from kinesumer.ops.group.problems import Severity, find_problems
from kinesumer.ops.group.status import GroupReport, report
from tests.support.doctor import ARN, app, check_finding, member, row, snapshot
from tests.support.group_reports import (
    LAGS,
    SHARDS,
    SNAPSHOT,
    A,
    status,
)


def test_each_state_of_a_shard() -> None:
    states = " ".join(SNAPSHOT.state(shard) for shard in SHARDS)
    assert states == "owned unowned orphaned waiting ended moving"


def test_problems_are_described() -> None:
    stalled = IncidentKind.STALLED
    assert status().problems == [
        f"a: user code: {stalled.meaning} (noted once) {stalled.remedy}",
        "stream orders: last PaymentError at record 4959 of shardId-3: 94 % of 100 "
        "calls fail, 6 dead letters in the last minute (reported by a)",
        "client b: its heartbeat has been unchanged for 7.0 s: it is stopped or dead, "
        "and fenced after 8 s",
        "client b: it is degraded: it can't reach Kinesis, and other clients have its "
        "shards",
        "stream orders: shardId-2 is unowned; planned for a",
        "stream orders: shardId-4 is orphaned (owner gone is dead); planned for a",
    ]


def test_the_shards_of_a_tables_stream_share_equally() -> None:
    places = [(7, False), (8, False), (9, True)]
    rows = [
        row(number, ended=ended)._replace(first_hash=at, last_hash=at)
        for number, (at, ended) in enumerate(places)
    ]
    [stream] = status(shards={ARN: rows}).streams
    assert [shard.share for shard in stream.shards] == [0.5, 0.5, 0.0]


def test_a_dead_leader_does_not_lead() -> None:
    answer = status(leader=LeaderRow("session of gone", "gone", 1))
    assert answer.leader is None
    assert "no client leads" in answer.problems


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        (LAGS, (1500, None, 48)),
        (Lags({}, {ARN: "access denied"}), (None, "access denied", None)),
        (NO_LAGS, (None, None, None)),
    ],
    ids=["of the slowest shard", "unknown", "not read"],
)
def test_a_stream_has_its_lag_and_retention(
    lags: Lags, expected: tuple[int | None, str | None, int | None]
) -> None:
    [stream] = status(lags).streams
    names = "millis_behind_latest", "lag_problem", "retention_hours"
    assert tuple(getattr(stream, name) for name in names) == expected


def test_a_pause_is_reported_with_its_reason_for_its_target_and_each_shard() -> None:
    group = GroupRow("g", paused=True, pause_reason="all of it")
    [stream] = SNAPSHOT.streams
    paused = stream._replace(paused=True, pause_reason="bad data")
    for changes, pause, reasons in (
        ({"group": group}, ("all", "all of it"), ["all of it", None]),
        ({"streams": [paused]}, ("stream", "bad data"), [None, "bad data"]),
    ):
        answer = status(**changes)
        [stream_answer] = answer.streams
        assert [answer.pause_reason, stream_answer.pause_reason] == reasons
        pauses = {(s.paused, s.pause_reason) for s in stream_answer.shards}
        assert pauses == {pause}
        unowned = [text for text in answer.problems if "planned for" in text]
        assert unowned == []
    answer = status(shards={ARN: [row(0, paused=True), row(2)]})
    [stream_answer] = answer.streams
    assert [s.paused for s in stream_answer.shards] == ["shard", None]
    assert (answer.paused, stream_answer.paused) == (False, False)


def test_a_problem_is_reported_if_all_clients_are_drained() -> None:
    drained = [A._replace(drained=True), member("gone", dead=True)]
    problems = status(members=[*drained, member("b")]).problems
    assert "drained" not in str(problems)
    problems = status(members=drained).problems
    assert "all clients are drained: no client may consume" in problems


def test_an_interrupted_reset_is_a_problem() -> None:
    problems = status(group=GroupRow("g", resetting=True)).problems
    assert any("kinesumer reset again" in text for text in problems)


def test_unreadable_rows_are_problems_too() -> None:
    answer = status(corrupt=("a row",))
    assert answer.unreadable_rows == answer.problems[:1] == ["a row"]


@pytest.mark.parametrize(
    ("now", "stuck", "unowned"),
    [
        (59.0, [], 59.0),
        (60.04, ["shardId-0", "shardId-4", "shardId-10"], 60.0),
    ],
)
def test_shards_are_stuck_after_a_minute_and_unowned_since_they_were_seen_so(
    now: float, stuck: list[str], unowned: float
) -> None:
    lags = Lags({shard.key: 20_000 for shard in SHARDS}, {})
    observed = observe(observe(None, SNAPSHOT, lags, 0.0), SNAPSHOT, lags, now)
    [stream] = report("app", "table", observed).streams
    assert [shard.shard_id for shard in stream.shards if shard.stuck] == stuck
    times = [shard.unowned_seconds for shard in stream.shards]
    assert times == [None, unowned, unowned, None, None, None]


def fields(struct: Any) -> set[str]:
    """Return the names of the fields of a structure and of its parts."""
    found: set[str] = set()
    for field in msgspec.structs.fields(struct):
        found.add(field.name)
        for part in (field.type, *get_args(field.type)):
            for one in (part, *get_args(part)):
                if isinstance(one, type) and issubclass(one, msgspec.Struct):
                    found |= fields(one)
    return found


def test_every_field_is_documented() -> None:
    document = Path(__file__).parents[4] / "docs" / "status-json.md"
    text = document.read_text()
    found = fields(GroupReport)
    assert {"polling", "problem", "handler_seconds_per_second", "position"} <= found
    for name in found:
        assert f"`{name}`" in text, name


@pytest.mark.parametrize(
    ("limits", "expected"), [((1, 1), 1), ((2, 1), 0), ((None, 1), 0)]
)
def test_shards_that_no_client_may_take_are_a_problem(
    limits: tuple[int | None, int], expected: int
) -> None:
    shards = [row(0, "a"), row(1, "b"), row(2, owner="")]
    members = [
        member(name, max_shards=limit) for name, limit in zip("ab", limits, strict=True)
    ]
    made = report("app", "table", FleetView(snapshot(shards, members)))
    assert made.streams[0].unassignable_shards == expected
    problems = [text for text in made.problems if "max_shards" in text]
    assert len(problems) == expected
    assert all("1 shard isn't read" in text for text in problems)
    others = [text for text in made.problems if "planned for" in text]
    assert len(others) == 1 - expected  # the same isn't said twice


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
        (fleet(member("silent")), WARNING, "client silent: its heartbeat has been"),
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
