"""Starts a worker: ``python -m tests.system.process.launch SETTINGS``.

Its clock is prepared before anything is imported that might keep the true one.
"""

from __future__ import annotations

import sys

from tests.system.process import walls

if __name__ == "__main__":
    walls.install()
    from tests.system.process.worker import main

    sys.exit(main(sys.argv[1]))
