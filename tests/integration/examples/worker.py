"""Run an example's ``consume`` with short leases, and stop at a given call.

    python -m tests.integration.examples.worker EXAMPLE FUNCTION CALL CLIENT STREAM

The process stops (SIGSTOP) at the CALL-th call of FUNCTION. If CALL is 0, it never
stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from kinesumer import Config, Kinesumer
from tests.support.crowd import load

Work = Callable[..., Awaitable[None]]

QUICK = Config(
    heartbeat_interval_seconds=0.8,
    # A process that gets no CPU time for so long loses its shards.
    lease_duration_seconds=4.0,
    leader_interval_seconds=0.2,
    rebalance_delay_seconds=0.2,
    listing_interval_seconds=1.0,
    # Positions are stored only when shards move, so a kill repeats many records.
    commit_interval_seconds=3600.0,
    max_records_per_read=20,
)


def stopping(work: Work, call: int) -> Work:
    """Wrap a function so that its n-th call stops this process."""
    calls = 0

    async def counted(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGSTOP)
        await work(*arguments)

    return counted


def main(example: str, function: str, call: str, client_id: str, stream: str) -> None:
    """Consume until SIGTERM."""
    module = load(example)
    module.CONFIG = QUICK
    module.Kinesumer = partial(Kinesumer, client_id=client_id)
    if hasattr(module, "SESSION"):
        module.SESSION = module.SESSION.replace("=10s", "=1s")
    setattr(module, function, stopping(getattr(module, function), int(call)))
    asyncio.run(module.consume(f"app-{stream}", [stream]))


if __name__ == "__main__":
    main(*sys.argv[1:])
