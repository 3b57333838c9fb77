"""``kinesumer verify history``: check what clients wrote into histories."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from kinesumer.ops.cli.console import plain, print_json, print_lines
from kinesumer.ops.cli.options import FiniteFloat
from kinesumer.ops.group.problems import Severity
from kinesumer.ops.history.check import CLOCK_ERROR_SECONDS, Verdict, check_directories
from kinesumer.ops.history.lines import HistoryError
from kinesumer.runtime.text import MAX_NAMED, counted


@click.command("verify history")
@click.argument(
    "directories",
    metavar="DIR…",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--clock-error",
    "clock_error_seconds",
    metavar="SECONDS",
    type=FiniteFloat(min=0),
    default=CLOCK_ERROR_SECONDS,
    show_default=True,
    help="The greatest difference between the clocks of several machines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print every fault.")
def verify_history(
    directories: tuple[Path, ...],
    clock_error_seconds: float,
    as_json: bool,
    verbose: bool,
) -> None:
    """Check what clients did, by the histories that they wrote.

    Each client whose environment has KINESUMER_HISTORY=DIR writes a file into DIR. The
    exit status is 0 if every rule was kept, and 4 if not. It is 1 if the command
    couldn't check.
    """
    try:
        verdict = check_directories(directories, clock_error_seconds)
    except HistoryError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(verdict._asdict())
    else:
        _show(verdict, verbose=verbose)
    if not verdict.is_good:
        click.get_current_context().exit(Severity.CRITICAL)


def _show(verdict: Verdict, *, verbose: bool) -> None:
    counts = ", ".join(f"{count:,} {what}" for what, count in verdict.counts.items())
    found = sum(map(len, verdict.faults.values()))
    title = "every rule was kept" if verdict.is_good else counted(found, "fault")
    lines = []
    for rule, faults in verdict.faults.items():
        shown = faults if verbose else faults[:MAX_NAMED]
        if faults:
            lines.append(plain(f"{rule}: {len(faults)}", "bold red"))
            lines += [plain(f"  {fault}") for fault in shown]
        if len(faults) > len(shown):
            lines.append(plain(f"  … {len(faults) - len(shown)} more: see --verbose"))
    remarks = map(plain, verdict.remarks)
    print_lines(plain(counts), *chain(remarks, lines), plain(title), wide=verbose)
