"""Files of a campaign: the result of each run, and runs to replay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.simulation.final_phases import AT_REST, FATAL, LATENCY
from kinesumer.simulation.limit_faults import KINDS
from kinesumer.simulation.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesumer.simulation.run import Outcome

RUNS, SUMMARY = "runs.jsonl", "summary.json"


class RunResult(msgspec.Struct, frozen=True):
    """The result of a run, as a line in the file."""

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
    """Return the result of a run."""
    run = outcome.run
    return RunResult(
        run.seed,
        run.scenario.name,
        run.scenario.members,
        sum(run.scenario.shards),
        run.ending,
        dict(sorted(outcome.faults.items())),
        round(outcome.simulated, 3),
        round(outcome.cpu_seconds, 3),
        outcome.delivered,
        outcome.redelivered,
        outcome.takeovers,
        outcome.handovers,
        outcome.violation,
    )


class CampaignResults:
    """The results in a directory, so that no seed is run again."""

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
        """Write the summary of all runs; return it in a line."""
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
        for name in (
            "simulated",
            "cpu_seconds",
            "delivered",
            "redelivered",
            "takeovers",
            "handovers",
        )
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
    """Return the totals of runs in a line."""
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
    """Return ascending numbers as ranges."""
    found: list[tuple[int, int]] = []
    for seed in seeds:
        if found and found[-1][1] == seed - 1:
            found[-1] = found[-1][0], seed
        else:
            found.append((seed, seed))
    return [str(low) if low == high else f"{low}-{high}" for low, high in found]


# --- runs to replay ---


def save_run(run: Run, path: Path) -> None:
    """Write a run to a file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load_run(path: Path) -> Run:
    """Return the run in a file. Raises ValueError if the file is invalid."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} holds no run: {error}") from error
    unknown = {fault.kind for fault in run.faults} - KINDS.keys()
    unknown |= {run.ending} - AT_REST.keys() - FATAL.keys() - LATENCY.keys()
    if unknown:
        raise ValueError(f"{path} names unknown faults: {', '.join(sorted(unknown))}")
    return run


def replay_command(path: Path) -> str:
    """Return the command that replays a file."""
    return f"python -m kinesumer.simulation --replay {path}"
