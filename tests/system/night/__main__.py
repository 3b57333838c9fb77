"""Search for faults for hours, each time with other seeds.

    python -m tests.system.night --hours 4 --jobs 2 --folder night

Fresh seeds of the simulator, chaos with drawn settings, the decoder's fuzzer, and drawn
parts of the model take turns. The model's large bounds are searched once. The last line
can be published. Each failure becomes a file in the folder: an issue's text, with the
command to repeat it. The exit status is 0 if there was none.
"""

from __future__ import annotations

import argparse
import random
import secrets
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.system.model.checker import has_checker
from tests.system.night.search import TASKS, Night

ROOT = Path(__file__).parents[3]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes of the simulator"
    )
    parser.add_argument("--seed", type=int, help="of all draws; drawn if not given")
    parser.add_argument("--folder", type=Path, default=Path("night"))
    parser.add_argument(
        "--only", choices=[task.name for task in TASKS], action="append"
    )
    chosen = parser.parse_args()
    if chosen.hours <= 0 or chosen.jobs < 1:
        parser.error("it takes some time, and a process")
    seed = secrets.randbelow(10**9) if chosen.seed is None else chosen.seed
    chosen.folder.mkdir(parents=True, exist_ok=True)
    tasks = [task for task in TASKS if not chosen.only or task.name in chosen.only]
    if not has_checker():
        print("skipped: the model, because SPIN isn't installed", flush=True)
        tasks = [task for task in tasks if "tests.system.model" not in task.arguments]
    night = Night(
        tasks,
        random.Random(seed),
        chosen.jobs,
        chosen.folder.resolve(),
        revision(),
        time.monotonic,
        lambda text: print(text, flush=True),
    )
    print(f"seed {seed}, commit {night.revision}", flush=True)
    night.run(3600 * chosen.hours)
    print(night.line(datetime.now(UTC).date().isoformat()), flush=True)
    return 1 if night.failures else 0


def revision() -> str:
    """Return the commit whose code is searched."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
