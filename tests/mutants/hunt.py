"""Looks for a seed that breaks a predicate: runs where a mutant was planted.

    python -m tests.mutants.hunt --seeds 12 --minutes 3

Prints what was found as JSON: the predicate or error, and after how many seeds.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import kinesumer
from kinesumer.testing.campaign import carry_out, dense


def hunt(seeds: int, minutes: float) -> tuple[str, int]:
    """Return what was violated and the number of seeds run; "" if nothing was."""
    for seed in range(seeds):
        outcome = carry_out(dense(seed, minutes=minutes))
        if outcome.predicate == "crash":
            return f"crash: {outcome.violation.strip().splitlines()[-1]}", seed + 1
        if outcome.predicate:
            return outcome.predicate, seed + 1
    return "", seeds


def main() -> None:
    """Hunt, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    options = parser.parse_args()
    assert Path(kinesumer.__file__).is_relative_to(Path.cwd()), kinesumer.__file__
    logging.getLogger("kinesumer").setLevel(logging.CRITICAL)
    print(json.dumps(hunt(options.seeds, options.minutes)))


if __name__ == "__main__":
    main()
