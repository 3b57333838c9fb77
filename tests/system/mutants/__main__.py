"""Breaks one rule at a time, and expects some check to notice each mutant.

python -m tests.system.mutants --list
python -m tests.system.mutants --only "commit backwards" --seeds 50
python -m tests.system.mutants --jobs 2
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.system.mutants.catalogue import MUTANTS, Mutant
from tests.system.mutants.runner import Effort, Verdict, judge

NAME, RULE = 58, 46
UNCHANGED = Mutant("nothing", "", ())


def main() -> None:
    """Print each mutant and the check that killed it. Exit with 1 if any survives."""
    options = _options()
    unknown = sorted({*options.only} - MUTANTS.keys())
    if unknown:
        sys.exit(f"no such mutants: {', '.join(unknown)}; --list shows all")
    chosen = [MUTANTS[name] for name in options.only or MUTANTS]
    if options.list:
        for made in chosen:
            print(f"{made.name:{NAME}} {made.rule}")
        return
    effort = Effort(options.seeds, options.minutes, options.tests_only)
    if not effort.tests_only and (found := judge(UNCHANGED, effort).killed_by):
        sys.exit(f"these seeds kill the unchanged package too: {found}")
    print(f"{'mutant':{NAME}} {'rule':{RULE}} seeds seconds  killed by")
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = []
        for verdict in pool.map(partial(judge, effort=effort), chosen):
            verdicts.append(verdict)
            print(_line(verdict), flush=True)
    alive = [verdict.mutant.name for verdict in verdicts if not verdict.killed_by]
    print(f"{len(verdicts)} mutants, {len(alive)} alive")
    sys.exit(1 if alive else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], help="a mutant's name; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="show them, run nothing")
    parser.add_argument("--seeds", type=int, default=Effort().seeds)
    parser.add_argument("--minutes", type=float, default=Effort().minutes)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--tests-only", action="store_true", help="skip the simulator")
    return parser.parse_args()


def _line(verdict: Verdict) -> str:
    made = verdict.mutant
    killed_by = verdict.killed_by.replace("tests/", "", 1) or "LIVES"
    return (
        f"{made.name:{NAME}} {made.rule:{RULE}} "
        f"{verdict.seeds:5} {verdict.seconds:7.1f}  {killed_by[:90]}"
    )


if __name__ == "__main__":
    main()
