"""Search the models of ``schema/model``.

    python -m tests.system.model [--large | --mistakes | --part SEED | --traces SEED]

Prints the states of each run, and exits with 1 if a run violates a property, or if a
deliberate mistake violates none. ``--part`` draws one of the runs that have too many
states, and an order of steps, and searches for some minutes. ``--traces`` replays
simulated runs with drawn faults in each model. Needs SPIN (Debian's
package ``spin``) and ``cc``.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.system.model.checker import (
    Result,
    Run,
    Size,
    has_checker,
    read_runs,
    search,
    search_part,
)
from tests.system.model.drawn_traces import violations


def main() -> None:
    """Search the runs with small bounds, or what the options say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--large", action="store_true")
    which.add_argument("--mistakes", action="store_true")
    which.add_argument("--part", type=int, metavar="SEED")
    which.add_argument("--traces", type=int, metavar="SEED", help="the first seed")
    parser.add_argument("--minutes", type=int, default=10, help="of --part")
    parser.add_argument("--count", type=int, default=20, help="of --traces")
    given = parser.parse_args()
    if not has_checker():
        sys.exit(
            "error: spin and cc must be installed (apt install spin gcc libc6-dev)"
        )
    runs, mistakes = read_runs()
    if given.part is not None:
        drawn = random.Random(given.part).choice(_of_size(runs, Size.PARTIAL))
        sys.exit(_report(drawn, search_part(drawn, given.part, given.minutes)))
    if given.traces is not None:
        sys.exit(_replay_all(range(given.traces, given.traces + given.count)))
    size = Size.LARGE if given.large else Size.SMALL
    chosen = mistakes if given.mistakes else _of_size(runs, size)
    failed = [_report(run, search(run)) for run in chosen]
    sys.exit(any(failed))


def _replay_all(seeds: range) -> bool:
    """Replay drawn runs. Return whether one is none of a model."""
    found = [f"seed {seed}: {each}" for seed in seeds for each in violations(seed)]
    print(f"{len(seeds)} traces", *found, sep="\n")
    return bool(found)


def _of_size(runs: list[Run], size: Size) -> list[Run]:
    return [run for run in runs if run.size is size]


def _report(run: Run, result: Result) -> bool:
    """Print a result. Return whether it is not the expected one."""
    found = result.violation and f"violated: {result.violation}"
    line = f"{run.name}: {result.states:,} states, {result.seconds:.0f} s {found}"
    print(line, flush=True)
    return bool(result.violation) != bool(run.mistake)


if __name__ == "__main__":
    main()
