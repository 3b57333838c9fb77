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

from kinesumer.demo.settings import Options
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from kinesumer.demo.view import Screen

SHORTEST_SECONDS = 20
TERMINATED = 143


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=SHORTEST_SECONDS),
    default=60,
    show_default=True,
    help="How long to produce.",
)
@click.option("--clients", type=click.IntRange(1, 50), default=3, show_default=True)
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
    help="Records a second, over all streams.",
)
@click.option("--plain", is_flag=True, help="Lines in place of a picture.")
@click.option("--spark", is_flag=True, help="A Spark query beside the clients, too.")
def demo(
    seconds: float, clients: int, shards: int, rate: int, plain: bool, spark: bool
) -> None:
    """Show everything at work, and check that nothing is lost.

    Starts an AWS of its own on this machine, several client processes, and a producer
    of numbered records. While they work it splits and merges shards, starts a client,
    kills one and stops one. At the end it holds what was processed against what was
    produced. The exit status is 0 only if nothing was lost and every bound was kept.
    With --spark, a Structured Streaming query reads the same streams as an app of its
    own, loses its driver once, and has to have each record once, in order.
    """
    if find_spec("moto") is None:
        raise ConfigurationError(
            "the demo needs the embedded AWS: pip install 'kinesumer[local]'"
        )
    if spark:
        _require_spark()
    options = Options(seconds, clients, shards, rate, plain, spark)
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
        raise ConfigurationError(f"the demo with --spark can't run: {error}") from error


async def _run(options: Options) -> bool:
    from kinesumer.demo.run import Demo

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="kinesumer-demo-") as directory:
        demo = Demo(options, Path(directory), _screen(options))
        words = await demo.run()
        for line in words:
            click.echo(line)
    return not demo.faults


def _screen(options: Options) -> Screen:
    if options.plain or not sys.stdout.isatty():
        from kinesumer.demo.view import Plain

        return Plain(click.echo)
    from kinesumer.demo.screen import Picture

    return Picture()
