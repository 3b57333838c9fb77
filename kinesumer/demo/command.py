"""``kinesumer demo``."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinesumer.demo.settings import DemoOptions
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from kinesumer.demo.view import Screen

MIN_SECONDS = 20
TERMINATED = 143


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=MIN_SECONDS),
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
    the produced ones. The exit status is 0 only if nothing was lost and every bound was
    kept. With --spark, a Structured Streaming query reads the same streams as an app of
    its own. Its driver is killed once, and its output must have each record once, in
    order.
    """
    if find_spec("moto") is None:
        raise ConfigurationError(
            "the demo needs the embedded AWS; run: pip install 'kinesumer[local]'"
        )
    if spark:
        _require_spark()
    options = DemoOptions(seconds, clients, shards, rate, plain, spark)
    try:
        is_good = asyncio.run(_run(options))
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
    if not is_good:
        sys.exit(1)


def _require_spark() -> None:
    try:
        with warnings.catch_warnings(action="error", category=RuntimeWarning):
            importlib.import_module("kinesumer.spark")
    except (ImportError, RuntimeWarning) as error:
        raise ConfigurationError(f"can't run the demo with --spark: {error}") from error


async def _run(options: DemoOptions) -> bool:
    from kinesumer.demo.run import Demo

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="kinesumer-demo-") as directory:
        demo = Demo(options, Path(directory), _screen(options))
        for line in await demo.run():
            click.echo(line)
    return not demo.faults


def _screen(options: DemoOptions) -> Screen:
    from kinesumer.demo.view import Picture, Plain

    if options.plain or not sys.stdout.isatty():
        return Plain(click.echo)
    return Picture()
