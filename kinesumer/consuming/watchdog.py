"""Tell the watchdog what user code and readers are working on, and since when.

Any thread may call these functions.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple, Protocol

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.runtime.clock import LoopClock

# The watchdog gives a request this extra time, so that the request's own timeouts end
# it first.
REQUEST_SECONDS = 20.0


class InFlightWork(NamedTuple):
    """Work that has made no progress since the time ``since``."""

    since: float
    what: str
    # Returns the stack of the work. It is called only if the work takes too long.
    stack: Callable[[], str]
    # For a request to Kinesis, the shard whose records it requests.
    request_of: OwnedShard | None = None


class RunningCalls(Protocol):
    """Knows the calls of callbacks that are running."""

    def works(self) -> list[InFlightWork]:
        """Return the calls that are running. Any thread may call this."""
        ...


class WorkSource(Protocol):
    """Knows what user code is working on."""

    thread: int  # the thread of the client's event loop

    @property
    def callbacks(self) -> RunningCalls | None:
        """The calls of user code's callbacks; None if it has none."""
        ...

    def oldest_work(self) -> InFlightWork | None:
        """Return user code's work that began first, or None if it has no work."""
        ...


def oldest_of(
    worker: WorkSource, owned_shards: Iterable[OwnedShard], loop_clock: LoopClock
) -> InFlightWork | None:
    """Return what has made no progress for the longest time, or None.

    This may be user code, a reader's request, or the event loop if something blocks it:
    a blocked event loop receives no answers.
    """
    user, thread = worker.oldest_work(), worker.thread
    works = [] if user is None else [user]
    if worker.callbacks is not None:
        works += worker.callbacks.works()
    if (held := loop_clock.blocked_since()) is not None:
        what = "what runs on the event loop and blocks it"
        works.append(InFlightWork(held, what, lambda: thread_stack(thread)))
    for owned in owned_shards:
        since = owned.request_since
        if since is not None:
            asked = loop_clock.to_client_time(since) + REQUEST_SECONDS
            works.append(_fetching(owned, asked, thread))
    return min(works, default=None, key=lambda work: work.since)


def _fetching(owned: OwnedShard, since: float, thread: int) -> InFlightWork:
    source = owned.source
    what = f"the request for records of {source.stream} {source.shard_id}"
    return InFlightWork(since, what, lambda: task_stack(owned.task, thread), owned)


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
