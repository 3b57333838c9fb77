"""Programs that consume until a signal. Their main function is named as argument.

    python -m tests.integration.client.programs MAIN [STUCK] [FULL]

Each prints a line for each record, and "ended" at its end. With STUCK, user code never
finishes its first record. With FULL, the system gives the program no descriptors from
its first record on.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from functools import partial

import kinesumer.blocking
from kinesumer import Config, Kinesumer, Record, Start
from kinesumer.coordination import leader

QUICK = Config(
    heartbeat_interval_seconds=0.3,
    lease_duration_seconds=5.0,
    rebalance_delay_seconds=0.1,
    leader_interval_seconds=0.1,
)
leader.FIRST_PLAN_DELAY_SECONDS = 0.0
OLDEST = Start.TRIM_HORIZON
STUCK, FULL = "STUCK" in sys.argv, "FULL" in sys.argv

print = partial(print, flush=True)


def show(record: Record) -> None:
    if FULL:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    print(record.data.decode())


async def handle(record: Record) -> None:
    show(record)
    if STUCK:
        await asyncio.sleep(3600)


async def loop() -> None:
    async with Kinesumer("app", config=QUICK, stop_signals=True) as client:
        async for record in client.consume("orders", start=OLDEST):
            await handle(record)


async def run() -> None:
    async with Kinesumer("app", config=QUICK) as client:
        await client.run("orders", handle, start=OLDEST, stop_signals=True)


def blocking_loop() -> None:
    with kinesumer.blocking.Kinesumer("app", config=QUICK, stop_signals=True) as client:
        for record in client.consume("orders", start=OLDEST):
            show(record)
            if STUCK:
                time.sleep(3600)


def blocking_run() -> None:
    with kinesumer.blocking.Kinesumer("app", config=QUICK) as client:
        client.run("orders", handle, start=OLDEST, stop_signals=True)


if __name__ == "__main__":
    main = globals()[sys.argv[1]]
    asyncio.run(main()) if asyncio.iscoroutinefunction(main) else main()
    print("ended")
