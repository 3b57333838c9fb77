"""``python -m kinesumer.testing.simulation``: simulate seeds, or replay a saved run."""

from __future__ import annotations

import os
import sys

from kinesumer.runtime.extras import require_cli

if __name__ == "__main__":
    require_cli()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Start again with a fixed hash seed, because it determines the order of sets.
        again: list[str] = [
            sys.executable,
            "-m",
            "kinesumer.testing.simulation",
            *sys.argv[1:],
        ]
        chosen: dict[str, str] = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, again, chosen)  # noqa: S606  this very program
    from kinesumer.testing.simulation.command import main

    main()
