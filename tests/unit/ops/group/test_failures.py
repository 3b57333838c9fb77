"""Test what reports say about failing user code, growing lags and waiting plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import LeaderRow
from kinesumer.model.streams import Start
from kinesumer.ops.group.client_reports import failures_of_group, failures_of_stream
from kinesumer.ops.group.doctor.members import waiting_plans
from kinesumer.ops.group.doctor.ownership import repeated_claims
from kinesumer.ops.group.doctor.runner import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.doctor.streams import growing_lags
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.problems import Severity
from kinesumer.ops.group.status import report
from tests.support.doctor import (
    ARN,
    KEYS,
    OTHER,
    app,
    check_finding,
    lag,
    member,
    row,
    snapshot,
    stream,
)

# Stream, since, done, calls, failed, letters, skipped, and the last error.
FAILING = "0 820 6 100 94 616 0 PaymentError 996 shardId-3 4959"


def failing(name: str = "a", text: str = FAILING, **more: Any) -> Any:
    return member(name, failures=text, **more)


def texts(*members: Any, now: float | None = 1000.0) -> str:
    found = failures_of_stream(members, ARN)
    assert found is not None
    return found.explain(now)


def test_the_last_error_comes_first_without_data_and_then_how_much_fails() -> None:
    assert texts(failing()) == (
        "last PaymentError at record 4959 of shardId-3, 4.0 s ago: 94 % of 100 calls "
        "fail, 616 dead letters in the last minute (reported by a, for 3 min)"
    )


def test_the_failures_of_several_clients_are_added_up() -> None:
    other = failing("b", "0 900 4 100 6 0 1 KeyError 999 shardId-1 7")
    assert texts(failing(), other) == (
        "last KeyError at record 7 of shardId-1, 1.0 s ago: 50 % of 200 calls fail, "
        "616 dead letters, 1 skipped record in the last minute (reported by a, b, for "
        "3 min)"
    )


def test_an_error_and_an_age_may_be_unknown() -> None:
    assert texts(failing(text="0 900 9 0 0 0 2"), now=None) == (
        "2 skipped records in the last minute (reported by a)"
    )


def test_few_failing_calls_are_not_rounded_to_none() -> None:
    assert texts(failing(text="0 900 9999 9999 1 0 0")).startswith("1 % of 9,999 calls")


def test_failures_of_other_streams_are_left_out() -> None:
    both = frozenset({ARN, OTHER})
    lines = "0 900 1 1 1 0 0\n1 900 2 2 2 0 0"
    client = failing(text=lines, streams=both)
    for arn, failed in zip(sorted(both), (1, 2), strict=True):
        found = failures_of_stream([client], arn)
        assert found is not None
        assert found.failed_calls == failed
    found = failures_of_group([client])
    assert found is not None
    assert found.failed_calls == 3
    assert failures_of_group([member("b")]) is None


def test_status_says_what_fails() -> None:
    fleet = FleetView(snapshot(members=[failing()], read_at=1000.0))
    made = report("app", "table", fleet)
    assert f"stream orders: {texts(failing())}" in made.problems
    assert msgspec.to_builtins(made.streams[0].failures) == {
        "clients": ["a"],
        "since": 820.0,
        "records_done": 6,
        "calls": 100,
        "failed_calls": 94,
        "dead_letters": 616,
        "skipped_records": 0,
        "last_error": {
            "type": "PaymentError",
            "shard_id": "shardId-3",
            "position": "4959",
            "at": 996.0,
        },
        "text": "94 % of 100 calls fail, 616 dead letters in the last minute",
    }
    made = report("app", "table", FleetView(snapshot()))
    assert made.streams[0].failures is None


def test_a_healthy_app_has_none_of_these_findings() -> None:
    checks = growing_lags, waiting_plans, repeated_claims
    for check in checks:
        assert check in APP_CHECK_FUNCTIONS
        assert list(check(app())) == []


# --- growing lags ---


def lags(first: int, second: int, *, moves: bool = True) -> Any:
    """Return an observation of one shard that lags."""
    after = Start.TRIM_HORIZON if moves else Start.LATEST
    return app(
        streams=stream(
            first={KEYS[0]: lag(0, first)},
            second={KEYS[0]: lag(10, second, after)},
        )
    )


@pytest.mark.parametrize(
    ("observed", "grows"),
    [
        (lags(170_000, 180_000), True),
        (lags(174_000, 180_000), True),
        (lags(180_000, 180_000, moves=False), True),
        (lags(178_000, 180_000), False),
        (lags(190_000, 180_000), False),
        (lags(40_000, 50_000), False),
    ],
    ids=["fast", "slowly", "stalled", "steady", "falling", "short"],
)
def test_the_doctor_finds_lags_that_grow(observed: Any, grows: bool) -> None:
    if grows:
        text = "shardId-0: up to 3 min behind, and the lag grows"
        check_finding(growing_lags(observed), Severity.WARNING, text)
    else:
        assert list(growing_lags(observed)) == []


@pytest.mark.parametrize("changes", [{"paused": True}, {"owner": ""}])
def test_a_shard_that_nobody_reads_has_another_finding(changes: dict[str, Any]) -> None:
    observed = lags(170_000, 180_000)
    rows = [row(0, **changes), row(1)]
    changed = replace(observed, second=snapshot(rows))
    assert list(growing_lags(changed)) == []


# --- plans and claims ---


def test_clients_that_get_no_plan_are_found() -> None:
    new = snapshot(members=[member("a"), member("b", range=None)])
    check_finding(waiting_plans(app(new)), Severity.WARNING, "b got no plan for 10 s")
    assert list(waiting_plans(app(snapshot(), new))) == []


def test_a_plan_by_load_that_waits_for_loads_is_a_note() -> None:
    leader = LeaderRow("session of a", "a", 1, assignor="load")
    waiting = snapshot(members=[member("a")], leader=leader, read_at=1000.0)
    check_finding(waiting_plans(app(waiting)), Severity.NOTE, "isn't known yet")
    assert report("app", "table", FleetView(waiting)).plan.waits is True


def test_shards_that_are_claimed_several_times_are_found() -> None:
    first = snapshot([row(0, epoch=7), row(1, epoch=7)])
    second = snapshot([row(0, epoch=9, position=Position("1")), row(1, epoch=8)])
    text = "shardId-0: claimed several times within 10 s"
    check_finding(repeated_claims(app(first, second)), Severity.WARNING, text)
