"""``python -m kinesumer.local [--port P]``: serve until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import sys

from kinesumer.local.server import EmbeddedAws, serve


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m kinesumer.local")
    parser.add_argument("--port", type=int, default=0, help="0: a free port")
    asyncio.run(serve(EmbeddedAws(port=parser.parse_args().port), sys.stdout))


if __name__ == "__main__":
    main()
