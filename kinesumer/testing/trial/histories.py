"""Judge the histories that the clients of a trial have written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kinesumer.ops.history.check import check_directories
from kinesumer.runtime.clock import SystemClock
from kinesumer.telemetry.history import History
from kinesumer.testing.trial.journal import Produced
from kinesumer.testing.trial.verdict import Line, nothing


def judge_histories(directory: Path, produced: Iterable[Produced]) -> Iterator[Line]:
    """Yield the lines about the histories in a directory.

    The produced records are added to them.
    """
    with (directory / "producer.jsonl").open("wb") as file:
        history = History(file.write, SystemClock())
        for record in produced:
            history.produced(record.shard, [record.position])
    verdict = check_directories([directory])
    counts = ", ".join(f"{count:,} {what}" for what, count in verdict.counts.items())
    yield Line("histories", counts)
    faults = [f"{rule}: {x}" for rule, found in verdict.faults.items() for x in found]
    yield nothing("faults in histories", faults)
