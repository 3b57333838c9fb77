"""Sets up a Python process of Spark: its event loop, its signals and its memory."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TypeVar

from kinesumer.config import MAX_CONNECTIONS
from kinesumer.errors import (
    ExpiredIteratorError,
    SourceUnavailableError,
    ThreadRefusedError,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import Retries, gather_or_cancel
from kinesumer.runtime.threads import start_thread

T = TypeVar("T")
FILE = "kinesumer-loads"
# Python's default is 700 new objects (2,000 as of Python 3.13). Chosen: a plan makes
# hundreds of thousands, so a few searches remain.
NEW_OBJECTS = 100_000
# The query fails if Kinesis doesn't answer for this long. Chosen: most outages are over
# sooner. A failed plan repeats nothing, so it need not wait as long as a task.
MAX_OUTAGE_SECONDS = 120.0
PLAN_RETRIES = Retries(
    (SourceUnavailableError, ExpiredIteratorError),
    max_seconds=MAX_OUTAGE_SECONDS,
    waits_for_credentials=True,
)


def run_on_loop(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine on this process's loop; return its result or raise its exception.

    The first call starts the loop, which runs until the process ends. Spark forks its
    workers, and threads don't survive a fork.
    """
    try:
        loop = _loop(os.getpid())
    except ThreadRefusedError:
        work.close()
        raise
    return asyncio.run_coroutine_threadsafe(work, loop).result()


@cache
def _loop(_process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    try:
        start_thread(loop.run_forever, "kinesumer-spark")
    except ThreadRefusedError:
        loop.close()
        raise
    return loop


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Await ``work`` for all items, as many as connections. Stop at an error."""
    waiting = list(items)
    queue = iter(waiting)  # shared: while one worker is busy, the others take the rest

    async def worker() -> None:
        for item in queue:
            await work(item)

    await gather_or_cancel(worker() for _ in waiting[:MAX_CONNECTIONS])


def collect_garbage_rarely() -> None:
    """Let Python look for cyclic garbage after NEW_OBJECTS new objects.

    A plan makes many small objects without cycles. With Python's default, the search
    for cycles among them and all imported objects takes half of the plan's CPU time.
    """
    gc.set_threshold(NEW_OBJECTS)


def stop_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit in the main thread, so that Spark calls ``stop()``.

    Spark sends SIGTERM when a query ends, sometimes twice. The second one is ignored.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _unwind)


def _unwind(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)  # as a shell reports it


def warn_of_other_loads(
    streams: Iterable[str], environment: Mapping[str, str] = os.environ
) -> None:
    """Note that this process reads streams, and warn if another process reads, too.

    Shards of one ``load()`` advance together, within ``maxSkewPerBatch``. Several loads
    do not: Spark runs each in a process of its own, and tells none which query it
    belongs to. If a query unites them first and sets one watermark afterwards, Spark
    drops the rows of the load that is behind.

    Spark gives all Python processes of an application one directory of their own. Do
    nothing where Spark names no such directory.
    """
    directory = environment.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not os.path.isdir(directory):
        return
    path = Path(directory, FILE)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {', '.join(streams)}\n")
    lines = path.read_text(encoding="utf-8").splitlines()
    loads = {int(pid): text for pid, text in (line.split(" ", 1) for line in lines)}
    others = [text for pid, text in loads.items() if pid != os.getpid() and _runs(pid)]
    if others:
        logger.warning(
            "this application also reads Kinesis through another load() (%s): if one "
            "query unites the loads, set withWatermark on each load before the union, "
            "or name all streams in one load(); one watermark after the union drops "
            "rows of the load that is behind",
            "; ".join(others),
        )


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
