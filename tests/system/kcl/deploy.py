"""Replace real KCL workers under load by clients, and those by workers again.

Prints what was lost and repeated, and the longest pause of a shard in each step:

python -m tests.system.kcl.deploy --version 3.5.1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kinesumer.testing import EmbeddedAws, background
from tests.system.kcl.fleet import Fleet, jars

SHARDS = 8
# For how long a step is watched after the process has stopped, in failover times.
WATCHED = 3


class Deploy:
    """A fleet that is deployed step by step."""

    def __init__(self, fleet: Fleet, failover_seconds: float) -> None:
        self._fleet, self._failover_seconds = fleet, failover_seconds
        self._steps: list[tuple[str, float]] = []

    def step(self, what: str, change: Callable[[str], None], process: str) -> None:
        """Start or stop a process, and let the fleet settle."""
        name = f"{what}: {process}"
        self._steps.append((name, time.time()))
        print(name, file=sys.stderr, flush=True)
        change(process)
        time.sleep(WATCHED * self._failover_seconds)

    def report(self) -> None:
        """Print the figures."""
        seen = self._fleet.seen()
        lost = self._fleet.produced.keys() - seen.keys()
        repeats = Counter(
            " and ".join(name for _, name in times)
            for times in seen.values()
            if len(times) > 1
        )
        pauses = self._fleet.pauses()
        ends = [at for _, at in self._steps[1:]] + [time.time()]
        for (name, begin), end in zip(self._steps, ends, strict=True):
            # A pause begins with the last record before a process has stopped.
            inside = [length for at, length in pauses if begin <= at + length < end]
            print(f"{name:30} longest pause {max(inside, default=0.0):5.1f} s")
        print(f"{len(seen)} records: {len(lost)} lost, {repeats.total()} repeated")
        for processes, count in repeats.most_common():
            print(f"{processes:30} {count}")


def deploy(version: str, failover_seconds: int) -> None:
    """Deploy three workers, three clients and three workers, and print the figures."""
    with tempfile.TemporaryDirectory() as folder, background(EmbeddedAws()) as aws:
        fleet = Fleet(
            aws,
            Path(folder),
            version,
            shards=SHARDS,
            failover_seconds=failover_seconds,
        )
        made = Deploy(fleet, failover_seconds)
        try:
            # Of workers of KCL 3 that start together on an empty table, some give up.
            fleet.worker("w1")
            fleet.until_owned(w1=SHARDS)
            fleet.worker("w2")
            fleet.worker("w3")
            fleet.until_owned(w1=1, w2=1, w3=1)
            for number in "123":
                made.step("client starts", fleet.client, f"c{number}")
                made.step("worker stops", fleet.stop, f"w{number}")
            for number in "123":
                made.step("worker starts", fleet.worker, f"v{number}")
                made.step("client stops", fleet.stop, f"c{number}")
            fleet.finish()
            made.report()
        finally:
            fleet.close()


def main() -> None:
    """Read the command line, and deploy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="3.5.1", help="2.7.2, 3.4.0 or 3.5.1")
    parser.add_argument("--failover-seconds", type=int, default=10)
    options = parser.parse_args()
    if not (jars(options.version) / "made").exists():
        sys.exit(f"no KCL {options.version}: run scripts/kcl_jars")
    deploy(options.version, options.failover_seconds)


if __name__ == "__main__":
    main()
