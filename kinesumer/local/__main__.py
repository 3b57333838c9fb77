"""``python -m kinesumer.local [--port P]``: serve until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from kinesumer.local.server import EmbeddedAws

if TYPE_CHECKING:
    from collections.abc import Sequence


async def serve(port: int, out: TextIO) -> None:
    """Serve on 127.0.0.1 until a signal comes; write the lines for a shell first."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with EmbeddedAws(port=port) as aws:
        for name, value in aws.environment().items():
            out.write(f"export {name}={value}\n")
        out.write("unset AWS_PROFILE AWS_SESSION_TOKEN\n")
        out.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m kinesumer.local")
    parser.add_argument("--port", type=int, default=0, help="0: a free port")
    asyncio.run(serve(parser.parse_args(arguments).port, sys.stdout))


if __name__ == "__main__":
    main()
