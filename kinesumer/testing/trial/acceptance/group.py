"""A group of processes with a producer, a kill, a stop, a join, a split and a merge.

The processes, the scenario and the verdict are those of each trial.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.testing.trial.processes import Names, Processes, TrialStream
from kinesumer.testing.trial.run import Trial, TrialOptions
from kinesumer.testing.trial.view import Plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.testing.trial.acceptance.account import Account

STREAMS = 2
SHARDS = 2  # of each stream
# A split makes two shards, and a merge one.
ALL_SHARDS = STREAMS * SHARDS + 3
OPTIONS = TrialOptions(
    seconds=60, clients=3, shards=SHARDS, rate=200, plain=True, spark=False
)


class GroupResult(NamedTuple):
    """The violations of a run of the group, and its figures."""

    faults: list[str]
    spark_faults: list[str]
    figures: dict[str, Any]


async def run_group(
    account: Account, prefix: str, *, spark: bool, say: Callable[[str], None]
) -> GroupResult:
    """Create the streams, run the scenario, and judge it."""
    streams = []
    for number in range(STREAMS):
        name = f"{prefix}-{number}"
        await account.streams.create(name, SHARDS)
        arn = (await (await account.streams.source(name)).describe()).arn
        streams.append(TrialStream(arn=arn, name=name, label=f"stream {number}"))
    region = {"AWS_REGION": account.region, "AWS_DEFAULT_REGION": account.region}
    with tempfile.TemporaryDirectory(prefix="kinesumer-acceptance-") as directory:
        names = Names("group", "group-spark", account.names.table)
        processes = Processes(Path(directory), os.environ | region, names)
        trial = Trial(OPTIONS._replace(spark=spark), processes, Plain(say))
        await trial.run(account.clients, streams)
    verdict = trial.verdict
    slow = set(verdict.slow)
    return GroupResult(
        faults=[fault for fault in trial.faults if fault not in slow],
        spark_faults=trial.spark_faults,
        figures={
            "produced": verdict.produced,
            "processed": verdict.processed,
            "repeated after the kill": sum(verdict.repeated_by_crash.values()),
            "pauses": [
                f"{pause.seconds:.2f} s, {limit.name}"
                + ("" if limit.seconds is None else f", bound {limit.seconds:g} s")
                for limit, pause in verdict.longest
            ],
        },
    )
