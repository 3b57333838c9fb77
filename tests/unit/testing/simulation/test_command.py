"""Test how faults are scheduled, and a violation is reduced and replayed."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.ports import Write
from kinesumer.testing.simulation.command import main
from kinesumer.testing.simulation.faults import KINDS as FAULTS
from kinesumer.testing.simulation.final_phases import FATAL
from kinesumer.testing.simulation.run import Rate, draw_faults, load_run, parse_rates
from kinesumer.testing.simulation.service_faults import (
    SERVICE_KINDS,
    SUBSCRIPTION_KINDS,
)
from kinesumer.wire import shard_writes

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break a rule: let clients take shards from owners that aren't proved dead."""
    right = shard_writes.claim

    def claim(
        app: str, row: ShardRow, member: MemberRow, nonce: str, dead_owner: str
    ) -> Write:
        return right(app, row, member, nonce, row.owner or dead_owner)

    def decide(rows: list[ShardRow], held: object, *_others: object) -> object:
        from kinesumer.core.claims import ClaimDecision

        free = [row for row in rows if not row.ended and row.ready]
        unheld = [row for row in free if row.key not in held]  # type: ignore[operator]
        return ClaimDecision(unheld, set(), free, [])

    # Twenty runs are enough to remove needless faults; more would shorten the times.
    monkeypatch.setattr("kinesumer.testing.simulation.command.MAX_RUNS", 20)
    monkeypatch.setattr(shard_writes, "claim", claim)
    monkeypatch.setattr("kinesumer.core.claims.decide_claims", decide)


def test_the_runs_of_several_seeds_add_up() -> None:
    shown = run("--seed", "5", "--count", "2", "--minutes", "0.2", "--faults", "none")
    assert [line[:12] for line in shown.output.splitlines()] == [
        "seed 5 plain",
        "seed 6 plain",
        "2 runs, 0 fa",
    ]


@pytest.mark.usefixtures("broken")
def test_a_violation_is_shown_as_the_shortest_run_and_replayed_by_one_command(
    tmp_path: Path,
) -> None:
    shown = run("--seed", "3", "--minutes", "1")
    assert shown.exit_code == 1
    path = tmp_path / "violation-3.json"
    for pattern in (
        "VIOLATION  I6 at .* is taken from id-",
        r"client-\d writes shard stream-0 shardId-\d+: .*owner id-\d+",
        "1 violations",
        f"python -m kinesumer.testing.simulation --replay {path.name}",
    ):
        assert re.search(pattern, shown.output)
    assert len(load_run(path).faults) <= 1
    again = run("--replay", path.name)
    assert again.exit_code == 1
    violation = next(ln for ln in again.output.splitlines() if "VIOLATION" in ln)
    assert violation in shown.output


KINDS = FAULTS | SERVICE_KINDS


def test_all_kinds_share_six_a_minute() -> None:
    rates = parse_rates("all")
    assert {rate.kind for rate in rates} == {*KINDS, *FATAL}
    shared = [rate.per_minute for rate in rates if rate.kind not in FATAL]
    assert sum(shared) == pytest.approx(6)
    assert len({*shared}) == 1


def test_kinds_may_have_rates_and_lengths_of_their_own() -> None:
    assert parse_rates("none") == ()
    assert parse_rates("crash:2,stall::20,split:1:5") == (
        Rate("crash", 2.0, 60.0),
        Rate("stall", 6.0, 20.0),
        Rate("split", 1.0, 5.0),
    )
    rates = {rate.kind: rate.per_minute for rate in parse_rates("all,crash:30")}
    assert rates["crash"] == 30
    assert rates["stall"] < 1
    together = [rate for rate in parse_rates("all:12:5") if rate.kind not in FATAL]
    assert sum(rate.per_minute for rate in together) == pytest.approx(12)
    assert {rate.seconds for rate in together} == {5.0}
    named = {rate.kind for rate in parse_rates("all,subscriptions")}
    every = {rate.kind for rate in parse_rates("all")}
    assert named - every == {*SUBSCRIPTION_KINDS}
    in_fleets = {rate.kind for rate in parse_rates("fleet")}
    assert every - in_fleets == {*FATAL, "expire", "pause", "seek", "seek_to_end"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rain", "faults: rain; known are all, fleet, subscriptions, none, auto, "),
        ("crash:0", "crash:0: rate and length must be greater than 0"),
        ("crash:often", "crash:often: rate and length must be numbers"),
        ("crash:1:2:3", "crash:1:2:3: write at most KIND:PER_MINUTE:SECONDS"),
    ],
)
def test_what_is_no_rate_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_rates(text)


def test_faults_come_as_often_and_last_as_long_as_their_rates_say() -> None:
    rates = parse_rates("crash:2,stall:1:20")
    faults = draw_faults(rates, 6000 * 60, random.Random(1))
    counts = Counter(fault.kind for fault in faults)
    assert counts["crash"] == pytest.approx(12000, rel=0.05)
    assert counts["stall"] == pytest.approx(6000, rel=0.05)
    longest = max(fault.duration_seconds for fault in faults if fault.kind == "stall")
    assert 19 < longest <= 20
    short = draw_faults(parse_rates("all:60"), 30, random.Random(1))
    assert short
    assert all(fault.at + fault.duration_seconds <= 30.001 for fault in short)


def test_what_nobody_survives_happens_at_the_end_only() -> None:
    assert draw_faults(parse_rates("table_deleted"), 600, random.Random(1)) == ()
