"""``python -m kinesumer.testing.simulate``: run seeds, or replay one that failed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kinesumer.testing.campaign import SHAPES, Dense, carry_out, summary
from kinesumer.testing.mishaps import MISHAPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.testing.campaign import Outcome
    from kinesumer.testing.simulation import Shape


@click.command()
@click.option("--shape", type=click.Choice([shape.name for shape in SHAPES]))
@click.option("--members", type=click.IntRange(1), help="Clients at the start.")
@click.option("--shards", type=int, multiple=True, help="Shards; once per stream.")
@click.option("--minutes", default=10.0, show_default=True, help="With faults.")
@click.option("--seed", type=int, help="The first seed; drawn if not given.")
@click.option("--count", default=1, show_default=True, help="How many seeds.")
@click.option("--faults", default="all", show_default=True, help="a,b,c, all or none.")
@click.option("--jobs", default=1, show_default=True, help="Processes to run in.")
@click.option("--quiet", is_flag=True, help="Only violations and the summary.")
def main(
    shape: str | None,
    members: int | None,
    shards: tuple[int, ...],
    minutes: float,
    seed: int | None,
    count: int,
    faults: str,
    jobs: int,
    quiet: bool,
) -> None:
    """Simulate groups of clients while everything goes wrong, and judge them."""
    _be_quiet()
    first = secrets.randbelow(10**9) if seed is None else seed
    runs = [
        Dense(_shape(number, shape, members, shards), number, minutes, _kinds(faults))
        for number in range(first, first + count)
    ]
    outcomes = []
    for outcome in _carry_out_all(runs, jobs):
        outcomes.append(outcome)
        if outcome.violation:
            _show(outcome)
        elif not quiet:
            click.echo(outcome.line)
    click.echo(summary(outcomes))
    if any(outcome.violation for outcome in outcomes):
        sys.exit(1)


def _shape(
    seed: int, name: str | None, members: int | None, shards: tuple[int, ...]
) -> Shape:
    shape = SHAPES[seed % len(SHAPES)]
    if name is not None or members is not None or shards:
        shape = next(known for known in SHAPES if known.name == (name or "plain"))
    if members is not None:
        shape = replace(shape, members=members)
    return replace(shape, shards=shards) if shards else shape


def _kinds(faults: str) -> tuple[str, ...]:
    if faults in ("all", "none"):
        return tuple(MISHAPS) if faults == "all" else ()
    kinds = tuple(faults.split(","))
    unknown = sorted({*kinds} - MISHAPS.keys())
    if unknown:
        raise click.BadParameter(
            f"{', '.join(unknown)}; known are all, none, {', '.join(MISHAPS)}"
        )
    return kinds


def _carry_out_all(runs: list[Dense], jobs: int) -> Iterator[Outcome]:
    if jobs == 1 or len(runs) == 1:
        yield from map(carry_out, runs)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _be_quiet) as pool:
        yield from pool.imap(carry_out, runs)


def _be_quiet() -> None:
    logging.getLogger("kinesumer").setLevel(logging.CRITICAL)


def _show(outcome: Outcome) -> None:
    click.echo("\n".join(outcome.events))
    click.echo(f"seed {outcome.run.seed} ({outcome.run.shape.name})")
    click.echo(f"VIOLATION  {outcome.violation}")
    click.echo(f"replay it  {outcome.run.replay}")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are walked in the order of their hashes.
        again = [sys.executable, "-m", "kinesumer.testing.simulate", *sys.argv[1:]]
        chosen = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, again, chosen)  # noqa: S606  this very program
    main()
