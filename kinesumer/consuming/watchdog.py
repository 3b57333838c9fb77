"""What user code and readers are doing, since when, and their stacks, for a watchdog.

Everything here may be called from another thread than the one that it looks at.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.runtime.clock import LoopClock


REQUEST_SECONDS = 20.0
"""Extra time of a request: its own timeouts come first."""


class InFlightWork(NamedTuple):
    """Work that has made no progress since a time of the clock."""

    since: float
    what: str
    stack: Callable[[], str]
    """Returns its stack; called only if the work takes too long."""
    request_of: OwnedShard | None = None
    """The shard that it requests records of, if it is a request."""


class WorkSource(Protocol):
    """Runs user code."""

    thread: int
    """The thread of the client's event loop."""

    def oldest_work(self) -> InFlightWork | None:
        """Return the oldest work of user code; None if it has none."""
        ...


def oldest_of(
    worker: WorkSource, owned_shards: Iterable[OwnedShard], loop_clock: LoopClock
) -> InFlightWork | None:
    """Return the oldest work of user code, of a reader, or of the event loop, if any.

    A blocked event loop counts, since it receives no answer.
    """
    user, thread = worker.oldest_work(), worker.thread
    works = [] if user is None else [user]
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
    """Return where a task waits, and where the thread of its event loop is.

    What blocks the loop may be the task itself, or anything else that runs there.
    """
    frames = [] if task is None else list(_awaiting(task.get_coro()))
    waits = "".join(_lines(frames))
    return f"The task is at:\n{waits}Its event loop's thread is at:\n" + thread_stack(
        thread
    )


def thread_stack(thread: int) -> str:
    """Return where a thread is; nothing if it has ended."""
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


def _lines(frames: list[FrameType]) -> list[str]:
    places = ((frame, frame.f_lineno) for frame in frames)
    return traceback.StackSummary.extract(places).format()
