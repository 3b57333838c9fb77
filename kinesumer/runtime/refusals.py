"""Recognize that the system has refused a thread, a file descriptor or memory.

A refusal is temporary: other threads and processes of the machine end, and release
what they have. So what was refused is tried again.
"""

from __future__ import annotations

import _thread
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kinesumer.errors import ConfigurationError, ThreadRefusedError, TransientError

# What the system returns if it has no more descriptors, processes, threads or memory.
ERRNOS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS)
)
# Libraries that can replace the system's threads by green threads.
GREEN = ("gevent", "eventlet")
# CPython's text, in a plain RuntimeError.
NO_THREAD = "can't start new thread"


def is_refusal(error: BaseException) -> bool:
    """Return whether an error or its cause is that the system refuses a resource."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ThreadRefusedError | MemoryError):
            return True
        if isinstance(cause, OSError) and cause.errno in ERRNOS:
            return True
        if isinstance(cause, RuntimeError) and str(cause) == NO_THREAD:
            return True
        cause = cause.__cause__
    return False


@contextmanager
def refusal_errors(what: str, unavailable: type[TransientError]) -> Iterator[None]:
    """Raise ``unavailable`` if the system refuses the block a resource."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not is_refusal(error):
            raise
        raise unavailable(
            f"the system refuses what {what} needs: {_text(error)}"
        ) from error


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread, and return it. Raise ThreadRefusedError.

    Raise ConfigurationError if threads are patched.
    """
    require_system_threads()
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadRefusedError(
            f"the system refuses the thread {name} ({_text(error)}): raise its limits "
            "of threads, processes and memory"
        ) from error
    return thread


def require_system_threads() -> None:
    """Raise ConfigurationError if a library has replaced the system's threads.

    All green threads share one thread of the system, which runs one event loop at most.
    """
    library = _thread.start_new_thread.__module__.partition(".")[0]
    if library in GREEN:  # a debugger replaces the function, too, but not the threads
        raise ConfigurationError(
            f"{library} has patched threads, but kinesumer runs event loops in threads "
            "of the system: leave threads out of the patches, for example by "
            "gevent's monkey.patch_all(thread=False)"
        )


def _text(error: Exception) -> str:
    return str(error) or "out of memory"
