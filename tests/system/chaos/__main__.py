"""Runs a fleet of real processes under random faults, and checks every promise.

    python -m tests.system.chaos --minutes 10 --clients 4 --streams 3 --seed 1
    python -m tests.system.chaos --minutes 10 --times default
    python -m tests.system.chaos --minutes 3 --backend kinesis-local
    python -m tests.system.chaos --minutes 3 --backend ministack
    python -m tests.system.chaos --minutes 3 --endpoint http://127.0.0.1:4566

The exit status is 0 if every promise was kept. Time limits grow by the time that the
fleet waited for processors. The verdict names each limit that had to grow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.system.chaos.backends import NAMES, backend
from tests.system.chaos.campaign import TIMES, Campaign, Plan


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", choices=TIMES, default="quick")
    parser.add_argument("--backend", choices=NAMES, default="embedded")
    parser.add_argument("--endpoint", help="of both Kinesis and DynamoDB")
    parser.add_argument("--folder", type=Path, help="keep journals and logs there")
    chosen = parser.parse_args()
    if chosen.clients < 2 or chosen.streams < 1 or chosen.minutes <= 0:
        parser.error("it takes two clients, a stream, and some time")
    with tempfile.TemporaryDirectory(prefix="kinesumer-chaos-") as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            parser.error(f"{folder} isn't empty: journals would be mixed up")
        return play(chosen, folder)


def play(chosen: argparse.Namespace, folder: Path) -> int:
    plan = Plan(
        chosen.minutes, chosen.clients, chosen.streams, chosen.seed, chosen.times
    )
    with backend(chosen.backend, chosen.endpoint, chosen.seed) as place:

        def say(text: str) -> None:
            print(text, flush=True)

        try:
            found = Campaign(plan, place, folder, say).run()
        except AssertionError as error:
            say(f"BROKEN: {error}")
            return 1
        say(found.text())
        for mishap, reason in place.without.items():
            say(f"not played on {place.name}: {mishap}: {reason}")
        for reason in place.deviations:
            say(f"not shown by {place.name}: {reason}")
        if found.is_doubtful:
            say("some bounds of time were only kept allowing for a busy machine")
    say("GOOD: every promise was kept" if found.is_good else "BAD: see above")
    return 0 if found.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
