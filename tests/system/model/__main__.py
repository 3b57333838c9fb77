"""Search the models of ``schema/model``.

    python -m tests.system.model [--large] [--mistakes]

Prints the states of each run, and exits with 1 if a run violates a property, or if a
deliberate mistake violates none. Needs SPIN (Debian's package ``spin``) and ``cc``.
"""

from __future__ import annotations

import argparse
import sys

from tests.system.model.checker import has_checker, read_runs, search


def main() -> None:
    """Search the runs with small bounds, or those with large ones, or the mistakes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--mistakes", action="store_true")
    given = parser.parse_args()
    if not has_checker():
        sys.exit(
            "error: spin and cc must be installed (apt install spin gcc libc6-dev)"
        )
    runs, mistakes = read_runs()
    chosen = [run for run in runs if run.is_large == given.large]
    failed = False
    for run in mistakes if given.mistakes else chosen:
        result = search(run)
        failed |= bool(result.violation) != bool(run.mistake)
        found = result.violation and f"violated: {result.violation}"
        line = f"{run.name}: {result.states:,} states, {result.seconds:.0f} s {found}"
        print(line, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
