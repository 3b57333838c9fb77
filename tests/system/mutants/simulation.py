"""Simulates seeds until one violates a predicate. The runner starts this module.

    python -m tests.system.mutants.simulation --seeds 12 --minutes 3

Prints the predicate or error, and the number of seeds until then, as JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import kinesumer
from kinesumer.testing.simulation.run import draw_dense_run, execute_run


def simulate(seeds: int, minutes: float) -> tuple[str, int]:
    """Return the violated predicate, or "", and the number of seeds run."""
    for seed in range(seeds):
        outcome = execute_run(draw_dense_run(seed, minutes=minutes))
        if outcome.predicate == "crash":
            return f"crash: {outcome.violation.strip().splitlines()[-1]}", seed + 1
        if outcome.predicate:
            return outcome.predicate, seed + 1
    return "", seeds


def main() -> None:
    """Simulate the seeds and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    options = parser.parse_args()
    assert Path(kinesumer.__file__).is_relative_to(Path.cwd()), kinesumer.__file__
    logging.getLogger("kinesumer").setLevel(logging.CRITICAL)
    print(json.dumps(simulate(options.seeds, options.minutes)))


if __name__ == "__main__":
    main()
