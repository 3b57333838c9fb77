"""Describe a piece of work that is in progress, and find the code that it runs.

Any thread may call these functions.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from kinesumer.consuming.owned_shard import OwnedShard

# The watchdog gives a request this extra time, so that the request's own timeouts end
# it first if no byte arrives: 3 s to connect, and 10 s to read (``aws/clients.py``).
REQUEST_SECONDS = 20.0


class InFlightWork(NamedTuple):
    """Work that has made no progress since the time ``since``."""

    since: float
    what: str
    # Returns the stack of the work. It is called only if the work takes too long.
    stack: Callable[[], str]
    # For a request to Kinesis, the shard whose records it requests.
    request_of: OwnedShard | None = None


def task_stack(task: asyncio.Task[Any] | None, thread: int) -> str:
    """Return the stack of a task, and that of its event loop's thread."""
    frames = () if task is None else _awaiting(task.get_coro())
    places = ((frame, frame.f_lineno) for frame in frames)
    waits = "".join(traceback.StackSummary.extract(places).format())
    return f"The task is at:\n{waits}Its event loop's thread is at:\n" + thread_stack(
        thread
    )


def thread_stack(thread: int) -> str:
    """Return a thread's stack, or an empty text if the thread has ended."""
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


def _awaiting(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine, the outermost first."""
    while awaited is not None:
        for prefix, waits_for in (
            ("cr", "cr_await"),
            ("gi", "gi_yieldfrom"),
            ("ag", "ag_await"),
        ):
            frame = getattr(awaited, f"{prefix}_frame", None)
            if frame is not None:
                yield frame
                awaited = getattr(awaited, waits_for)
                break
        else:
            return
