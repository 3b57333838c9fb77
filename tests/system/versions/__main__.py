"""Simulate groups in which clients run this version or another one.

    python -m tests.system.versions [REVISION] --seed 1 --count 20 --jobs 2

Without a revision, the other version is the last tag; without a tag, the first revision
that the simulator can run. Each deploy changes the version of new clients: to this one,
to the other, or to either. So deploys go over and back.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from kinesumer.testing.simulation.other_version import OtherVersion
from tests.system.versions.revisions import extract, last_release


def main() -> int:
    """Simulate drawn groups, and return the simulator's exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    revision = given.revision or last_release()
    with tempfile.TemporaryDirectory() as name:
        try:
            extract(revision, Path(name))
            OtherVersion(Path(name))
        except (LookupError, ValueError) as error:
            print(f"skipped: {error}")
            return 0
        print(f"this version and {revision}", flush=True)
        simulation = [sys.executable, "-m", "kinesumer.testing.simulation", "--quiet"]
        options = (
            f"--versions {name} --shape drawn --faults all,subscriptions,deploy:1 "
            f"--seed {given.seed} --count {given.count} --minutes {given.minutes} "
            f"--jobs {given.jobs}"
        )
        return subprocess.run([*simulation, *options.split()], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
