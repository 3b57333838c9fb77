"""Check histories by all rules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kinesumer.ops.history import delivery_rules, row_rules
from kinesumer.ops.history.index import Rule, build_index
from kinesumer.ops.history.lines import find_files, read_histories

# NTP keeps the clocks of machines closer together than this.
CLOCK_ERROR_SECONDS = 0.5

RULES: dict[str, Rule] = {
    "lines that contradict one another": row_rules.contradictions,
    "epochs with two owners": row_rules.two_owners,
    "rows gone back": row_rules.rows_gone_back,
    "checkpoints of former owners": row_rules.foreign_commits,
    "checkpoints without a writer": row_rules.unknown_values,
    "leader epochs with two leaders": row_rules.two_leaders,
    "plans gone back": row_rules.plans_gone_back,
    "deliveries without a claim": delivery_rules.not_owned,
    "deliveries after a later claim": delivery_rules.too_late,
    "deliveries after the session's death": delivery_rules.after_death,
    "records out of order": delivery_rules.out_of_order,
    "records repeated in an epoch": delivery_rules.repeats,
    "records passed by a checkpoint, not delivered": delivery_rules.passed_over,
    "records passed by a checkpoint, not done": delivery_rules.not_done,
    "gaps in what a loop got": delivery_rules.gaps,
    "records lost": delivery_rules.lost,
    "children before their parents": delivery_rules.children_first,
}


class Verdict(NamedTuple):
    """The result of a check of histories."""

    counts: dict[str, int]
    faults: dict[str, list[str]]  # by rule
    remarks: list[str]

    @property
    def is_good(self) -> bool:
        """True if every rule was kept."""
        return not any(self.faults.values())


def check_directories(
    directories: Iterable[Path], clock_error_seconds: float = CLOCK_ERROR_SECONDS
) -> Verdict:
    """Check all histories of directories, as ``check_histories()``."""
    return check_histories(find_files(directories), clock_error_seconds)


def check_histories(
    files: Iterable[tuple[str, bytes]],
    clock_error_seconds: float = CLOCK_ERROR_SECONDS,
) -> Verdict:
    """Check files, given by name and content. Raises HistoryError.

    ``clock_error_seconds`` is the greatest difference between the clocks of machines.
    It does not matter if all processes ran on one machine.
    """
    histories = read_histories(files)
    margin, remarks = 0.0, []
    if not histories.is_on_one_clock:
        margin, histories = clock_error_seconds, histories.in_utc()
        remarks.append(
            "several machines: their times are compared only if they are more than "
            f"{margin:g} s apart"
        )
    index = build_index(histories)
    remarks += [
        f"{shard.name}: no history has the beginning of epochs "
        f"{', '.join(map(str, sorted(shard.unexplained)))}: an operator moved the "
        "shard, or a client wrote no history"
        for shard in index.shards.values()
        if shard.unexplained
    ]
    counts = {
        "processes": len(histories.clients),
        "calls": len(histories.calls),
        "shards": len(index.shards),
        "epochs": sum(len(shard.epochs) for shard in index.shards.values()),
        "checkpoints": sum(len(shard.commits) for shard in index.shards.values()),
        "deliveries": histories.count("deliver"),
        "produced records": histories.count("produced"),
    }
    faults = {what: list(rule(index, margin)) for what, rule in RULES.items()}
    return Verdict(counts, faults, remarks)
