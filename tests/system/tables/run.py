"""Run a group that consumes a table's stream together with a Kinesis stream.

``kinesumer local`` serves both, as a process. The table's shards roll over often.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from kinesumer import Stream
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source
from kinesumer.model.streams import ShardKey
from kinesumer.model.table_streams import is_table_stream
from kinesumer.testing.trial.acceptance.table_resources import StreamedTables
from kinesumer.testing.trial.oracle import Parents, ancestors
from kinesumer.testing.trial.processes import (
    WAIT_SECONDS,
    Names,
    Processes,
    TrialStream,
    isolated_environment,
)
from kinesumer.testing.trial.run import Plain, Trial, TrialOptions
from kinesumer.testing.trial.verdict import Line, Verdict

CLIENTS = 3
RATE = 100  # records and changes per second
PARTITIONS = 2
TABLE = "customers"


class Plan(NamedTuple):
    """How often the table's shards roll over, and how often at least."""

    roll_overs: int = 10
    roll_over_seconds: float = 8.0
    spark: bool = True

    @property
    def seconds(self) -> float:
        """How long to produce: long enough also if the first change comes late."""
        return (self.roll_overs + 1.5) * self.roll_over_seconds


async def run(plan: Plan, directory: Path, say: Callable[[str], object]) -> Verdict:
    """Run the group, and judge it. A kill, a join and a leave are parts of the run."""
    environment = isolated_environment(os.environ)
    with Processes(directory, environment, Names()) as processes:
        processes.environment |= await start_local(plan, processes)
        with mock.patch.dict(os.environ, processes.environment, clear=True):
            async with ClientFactory() as clients:
                trial = Trial(
                    TrialOptions(plan.seconds, CLIENTS, RATE, plan.spark),
                    processes,
                    Plain(say),
                    clients,
                    await open_streams(clients),
                )
                await trial.run()
    lines = [*trial.verdict.lines, *trial.spark_verdict.lines]
    counts = roll_overs(trial.observed.parents)
    is_enough = min(counts, default=0) >= plan.roll_overs
    what = f"roll-overs of {len(counts)} partitions"
    done = Line(what, f"{counts}", f"at least {plan.roll_overs}", is_enough)
    return Verdict([*lines, done])


async def start_local(plan: Plan, processes: Processes) -> Mapping[str, str]:
    """Start ``kinesumer local``, and return the variables that it prints."""
    local = processes.start(
        "local",
        "kinesumer.ops.cli",
        "local",
        "--stream=orders:2",
        f"--table-partitions={PARTITIONS}",
        f"--table-rollover-seconds={plan.roll_over_seconds}",
        has_output=True,
    )
    variables: dict[str, str] = {}
    while line := await local.read_line(WAIT_SECONDS):
        command, *words = shlex.split(line.decode())
        if command != "export":
            return variables
        name, _, variables[name] = words[0].partition("=")
    raise AssertionError(local.last_log_line())


async def open_streams(clients: ClientFactory) -> list[TrialStream]:
    """Create the table. Return its stream, and the Kinesis stream."""
    tables = await StreamedTables.open_tagged(clients, {})
    await tables.create_streamed(TABLE)
    streams = []
    for read in (Stream("orders"), Stream(table=TABLE)):
        source = await open_polled_source(clients, read)
        streams.append(TrialStream(await source.arn(), read.name, read))
    return streams


def roll_overs(parents: Parents) -> list[int]:
    """Return how often each partition of the table rolled over."""
    shards = {key for key in parents if is_table_stream(key.stream_arn)}
    closed: set[ShardKey] = {parent for key in shards for parent in parents[key]}
    return [len(ancestors(leaf, parents)) for leaf in shards - closed]
