"""The command ``kinesumer demo``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import click

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.options import FiniteFloat
from kinesumer.testing.trial.processes import (
    Names,
    Processes,
    isolated_environment,
)
from kinesumer.testing.trial.run import Picture, Plain, Trial, TrialOptions
from kinesumer.testing.trial.spark_process import missing_spark


@click.command()
@click.option(
    "--seconds",
    type=FiniteFloat(min=20),
    default=60,
    show_default=True,
    help="How long to produce records.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="Client processes at the start.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Shards of each of the three streams.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 20_000),
    default=500,
    show_default=True,
    help="Records per second, over all streams.",
)
@click.option("--plain", is_flag=True, help="Print lines, draw no picture.")
@click.option("--spark", is_flag=True, help="Run a Spark query beside the clients.")
def demo(
    seconds: float, clients: int, shards: int, rate: int, plain: bool, spark: bool
) -> None:
    """Run a group of clients through faults, and check that nothing is lost.

    Starts an embedded AWS on this machine, several client processes, and a producer of
    numbered records. While they work, the demo splits and merges shards, starts a
    client, kills one and stops one. At the end it compares the processed records with
    the produced ones. The exit status is 0 only if nothing was lost and no pause was
    longer than its bound. With --spark, a Structured Streaming query also reads the
    streams, as an app of its own. Its driver is killed once, and its output must have
    each record once, in order.
    """
    if find_spec("moto") is None:
        raise ConfigurationError(
            "the demo needs the embedded AWS; run: pip install 'kinesumer[local]'"
        )
    if spark and (problem := missing_spark()):
        raise ConfigurationError(
            f"can't run the demo with --spark; install what is missing: {problem}"
        )
    options = TrialOptions(seconds, clients, rate, spark)
    try:
        is_good = asyncio.run(_run(options, shards, plain=plain))
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
    if not is_good:
        sys.exit(1)


async def _run(options: TrialOptions, shards: int, *, plain: bool) -> bool:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    closed: list[BrokenPipeError] = []

    def write(line: str) -> None:
        # If standard output is closed, cancel the run. The error is raised afterwards.
        try:
            click.echo(line)
        except BrokenPipeError as error:
            if not closed:
                task.cancel()
            closed.append(error)

    with tempfile.TemporaryDirectory(prefix="kinesumer-demo-") as directory:
        is_plain = plain or not sys.stdout.isatty()
        screen = Plain(write) if is_plain else Picture()
        environment = isolated_environment(os.environ)
        try:
            with Processes(Path(directory), environment, Names()) as processes:
                info = await processes.start_server(shards)
                # The requests of this process must not reach real AWS accounts either.
                os.environ.clear()
                os.environ.update(processes.environment)
                async with ClientFactory() as clients:
                    trial = Trial(options, processes, screen, clients, info.streams)
                    lines = await trial.run()
        except asyncio.CancelledError:
            if closed:
                raise closed[0] from None
            raise
    for line in lines:
        click.echo(line)
    return trial.verdict.is_good and trial.spark_verdict.is_good
