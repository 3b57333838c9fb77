"""The files of a campaign, which store the results of runs, and runs to replay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.testing.simulation.final_phases import AT_REST, FATAL, LATENCY
from kinesumer.testing.simulation.run import Run
from kinesumer.testing.simulation.service_faults import EVERY_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesumer.testing.simulation.run import Outcome

RUNS, SUMMARY = "runs.jsonl", "summary.json"
COUNTS = ("delivered", "redelivered", "takeovers", "handovers")


class RunResult(msgspec.Struct, frozen=True):
    """The result of a run, which is one line in the file of results."""

    seed: int
    scenario: str
    members: int
    shards: int
    ending: str
    faults: dict[str, int]
    simulated: float
    cpu_seconds: float
    delivered: int
    redelivered: int
    takeovers: int
    handovers: int
    violation: str = ""


def result_of(outcome: Outcome) -> RunResult:
    """Return the result to store for the outcome of a run."""
    run = outcome.run
    return RunResult(
        seed=run.seed,
        scenario=run.scenario.name,
        members=run.scenario.members,
        shards=sum(run.scenario.shards),
        ending=run.ending,
        faults=dict(sorted(outcome.faults.items())),
        simulated=round(outcome.simulated, 3),
        cpu_seconds=round(outcome.cpu_seconds, 3),
        violation=outcome.violation,
        **{name: getattr(outcome, name) for name in COUNTS},
    )


class CampaignResults:
    """The results of a campaign in its directory. Seeds with results are skipped."""

    def __init__(self, directory: Path) -> None:
        self.entries: dict[int, RunResult] = {}
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / RUNS
        text = path.read_bytes() if path.exists() else b""
        # Drop an incomplete last line, so that its run is repeated.
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            entry = msgspec.json.decode(line, type=RunResult)
            self.entries[entry.seed] = entry
        path.write_bytes(whole)

    def add(self, outcome: Outcome) -> None:
        """Add the result of a run."""
        entry = result_of(outcome)
        self.entries[entry.seed] = entry
        with (self._directory / RUNS).open("ab") as lines:
            lines.write(msgspec.json.encode(entry) + b"\n")

    def close(self) -> str:
        """Write the summary of all runs, and return a line with the totals."""
        entries = self.entries.values()
        text = msgspec.json.format(msgspec.json.encode(totals_of(entries)), indent=2)
        (self._directory / SUMMARY).write_bytes(text + b"\n")
        return summary(entries)


def totals_of(entries: Iterable[RunResult]) -> dict[str, Any]:
    """Return the totals of many runs."""
    entries = sorted(entries, key=lambda entry: entry.seed)
    faults = sum((Counter(entry.faults) for entry in entries), Counter[str]())
    endings = Counter(entry.ending for entry in entries)
    totals = {
        name: round(sum(getattr(entry, name) for entry in entries))
        for name in ("simulated", "cpu_seconds", *COUNTS)
    }
    return {
        "runs": len(entries),
        "seeds": _ranges([entry.seed for entry in entries]),
        **totals,
        "most_members": max((entry.members for entry in entries), default=0),
        "most_shards": max((entry.shards for entry in entries), default=0),
        "faults": faults.total(),
        "faults_by_kind": dict(faults.most_common()),
        "endings": dict(endings.most_common()),
        "violations": {
            str(entry.seed): entry.violation for entry in entries if entry.violation
        },
    }


def summary(entries: Iterable[RunResult]) -> str:
    """Return the totals of runs as one line of text."""
    total = totals_of(entries)
    cpu = max(1, total["cpu_seconds"])
    return (
        f"{total['runs']} runs, {total['faults']} faults, "
        f"{total['takeovers']} takeovers, {total['handovers']} hand-overs, "
        f"{total['delivered']} records; {total['simulated']} s in {cpu} CPU s: "
        f"{total['simulated'] / cpu:.0f} per second; "
        f"{len(total['violations'])} violations"
    )


def _ranges(seeds: list[int]) -> list[str]:
    """Return sorted numbers as texts, in which consecutive numbers form a range."""
    ranges: list[tuple[int, int]] = []
    for seed in seeds:
        if ranges and ranges[-1][1] == seed - 1:
            ranges[-1] = ranges[-1][0], seed
        else:
            ranges.append((seed, seed))
    return [str(low) if low == high else f"{low}-{high}" for low, high in ranges]


# --- runs to replay ---


def save_run(run: Run, path: Path) -> None:
    """Write a run to a file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load_run(path: Path) -> Run:
    """Return the run in a file. Raises ValueError if the file is invalid."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} doesn't contain a valid run: {error}") from error
    unknown = {fault.kind for fault in run.faults} - EVERY_KIND.keys()
    unknown |= {run.ending} - AT_REST.keys() - FATAL.keys() - LATENCY.keys()
    if unknown:
        raise ValueError(f"{path} names unknown faults: {', '.join(sorted(unknown))}")
    return run
