"""Test that a campaign adds up its runs' results, and doesn't repeat finished runs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from kinesumer.testing.simulation.command import main
from kinesumer.testing.simulation.results import CampaignResults
from kinesumer.testing.simulation.run import Outcome, Run
from kinesumer.testing.simulation.scenarios import NAMED

if TYPE_CHECKING:
    from pathlib import Path


def outcome(seed: int, violation: str = "") -> Outcome:
    run = Run(NAMED[0], seed, 10.0, ())
    faults = Counter(crash=2, split=seed)
    return Outcome(run, simulated=600.0, faults=faults, violation=violation)


def test_runs_of_several_sessions_add_up(tmp_path: Path) -> None:
    first = CampaignResults(tmp_path)
    first.add(outcome(1))
    first.add(outcome(2))
    second = CampaignResults(tmp_path)
    assert second.entries.keys() == {1, 2}
    second.add(outcome(4, "I3 at 5.000 s: too late"))
    assert second.close().startswith("3 runs, 13 faults")
    total = json.loads((tmp_path / "summary.json").read_text())
    assert total["seeds"] == ["1-2", "4"]
    assert total["simulated"] == 1800
    assert total["faults_by_kind"] == {"split": 7, "crash": 6}
    assert total["violations"] == {"4": "I3 at 5.000 s: too late"}


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    campaign_results = CampaignResults(tmp_path)
    campaign_results.add(outcome(1))
    campaign_results.add(outcome(2))
    path = tmp_path / "runs.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    again = CampaignResults(tmp_path)
    assert again.entries.keys() == {1}
    again.add(outcome(2))
    assert CampaignResults(tmp_path).entries.keys() == {1, 2}


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def run(count: str) -> Result:
        arguments = ["--seed", "5", "--count", count, "--minutes", "0.2"]
        return CliRunner().invoke(main, [*arguments, "--campaign", str(tmp_path)])

    assert "seed 5 plain" in run("1").output
    longer = run("2").output
    assert "seed 5" not in longer
    assert "seed 6 plain" in longer
    assert "2 runs" in longer
