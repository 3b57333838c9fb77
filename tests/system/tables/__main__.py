"""Run a group on a table's stream and a Kinesis stream of ``kinesumer local``.

    python -m tests.system.tables
    python -m tests.system.tables --roll-overs 30 --seconds 5 --no-spark

Three clients read both streams while the table's shards roll over. A client joins, one
is killed, and one leaves. A Spark query reads the same streams. Its driver is killed
and started again. The exit status is 0 if every promise was kept.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from kinesumer.testing.trial.verdict import conclusion
from tests.system.tables.run import Plan, run


def main() -> int:
    defaults = Plan()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--roll-overs", type=int, default=defaults.roll_overs)
    parser.add_argument("--seconds", type=float, default=defaults.roll_over_seconds)
    parser.add_argument("--no-spark", action="store_true")
    chosen = parser.parse_args()
    plan = Plan(chosen.roll_overs, chosen.seconds, not chosen.no_spark)
    with tempfile.TemporaryDirectory(prefix="kinesumer-tables-") as directory:
        verdict = asyncio.run(run(plan, Path(directory), print))
    print("", verdict.text(), "", *conclusion(verdict.faults()), sep="\n")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
