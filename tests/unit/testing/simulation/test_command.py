"""Test that the command reduces a violation to its shortest run, and replays it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.ports import Write
from kinesumer.testing.simulation.command import main
from kinesumer.testing.simulation.run import load_run
from kinesumer.wire import shard_writes


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
    assert "VIOLATION  I6 at" in shown.output
    assert "is taken from id-" in shown.output
    assert re.search(
        r"client-\d writes shard stream-0 shardId-\d+: .*owner id-\d+",
        shown.output,
    )
    assert "1 violations" in shown.output
    path = tmp_path / "violation-3.json"
    command = f"python -m kinesumer.testing.simulation --replay {path.name}"
    assert command in shown.output
    assert len(load_run(path).faults) <= 1
    again = run("--replay", path.name)
    assert again.exit_code == 1
    violation = next(ln for ln in again.output.splitlines() if "VIOLATION" in ln)
    assert violation in shown.output
