"""Define the command that replays a recording."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kinesumer.testing.simulation.replay.recorded_run import RecordingError
from kinesumer.testing.simulation.replay.run import ReplayOutcome, replay


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay_command(file: Path) -> None:
    """Run a client's code on what FILE, a recording, says that it was told.

    Prints what the client was told and what it did, in virtual time. The exit status is
    1 if it did something else than was recorded.
    """
    try:
        outcome = replay(file)
    except RecordingError as error:
        raise click.BadParameter(str(error), param_hint="FILE") from error
    for line in outcome.lines:
        click.echo(line)
    click.echo(summary(outcome))
    if outcome.divergence:
        sys.exit(1)


def summary(outcome: ReplayOutcome) -> str:
    """Return the outcome as one line of text."""
    harmless = ", ".join(
        f"{number} × {kind}" for kind, number in sorted(outcome.harmless.items())
    )
    end = f"diverged: {outcome.divergence}" if outcome.divergence else "no divergence"
    return f"{outcome.seconds:.0f} s; {end}; harmless differences: {harmless or 'none'}"
