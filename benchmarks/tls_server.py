"""Serve another server of this machine through TLS.

    python -m benchmarks.tls_server URL DIRECTORY

Writes the certificate to trust, ``cert.pem``, into
DIRECTORY. Prints its URL, and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.tls_front import tls_front


async def main() -> None:
    """Serve until standard input ends."""
    url, directory = sys.argv[1:]
    async with tls_front(url, Path(directory)) as front:
        print(front.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
