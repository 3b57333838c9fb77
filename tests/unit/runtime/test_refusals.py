"""Test which errors say that the system refuses a resource, and refused threads."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from kinesumer.blocking import Kinesumer, Producer, create_table
from kinesumer.errors import (
    ConfigurationError,
    SourceUnavailableError,
    ThreadRefusedError,
)
from kinesumer.runtime.refusals import (
    is_refusal,
    refusal_errors,
    require_system_threads,
    start_thread,
)


def caused_by(cause: Exception) -> SourceUnavailableError:
    error = SourceUnavailableError("GetRecords")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        MemoryError(),
        RuntimeError("can't start new thread"),
        ThreadRefusedError("no thread"),
        caused_by(MemoryError()),
    ],
    ids=str,
)
def test_a_refused_resource_is_known_by_its_error(error: Exception) -> None:
    assert is_refusal(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
        RuntimeError("can't create new thread at interpreter shutdown"),
        RuntimeError("cannot schedule new futures after shutdown"),
        SourceUnavailableError("GetRecords"),
        caused_by(ConnectionResetError(errno.ECONNRESET, "reset")),
    ],
    ids=str,
)
def test_other_errors_are_no_refusals(error: Exception) -> None:
    assert not is_refusal(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "out of memory"),
        (OSError(errno.EMFILE, "no more files"), "no more files"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (ThreadRefusedError("no thread"), "no thread"),
    ],
)
def test_only_refusals_are_translated(error: Exception, text: str) -> None:
    with pytest.raises(SourceUnavailableError, match=f"what a read needs: .*{text}"):
        with refusal_errors("a read", SourceUnavailableError):
            raise error
    for other in (RuntimeError("bug"), ConnectionResetError("reset")):
        with pytest.raises(type(other)):
            with refusal_errors("a read", SourceUnavailableError):
                raise other


def test_patched_threads_are_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_new_thread(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("_thread.start_new_thread", start_new_thread)
    monkeypatch.setattr(start_new_thread, "__module__", "gevent.thread")
    for start in (
        lambda: start_thread(print, "kinesumer-test"),
        Kinesumer("app").__enter__,
        Producer("orders").__enter__,
        create_table,
    ):
        with pytest.raises(
            ConfigurationError, match="gevent has patched threads"
        ) as one:
            start()
        assert ". " not in str(one.value)
    monkeypatch.setattr(start_new_thread, "__module__", "debugger.threads")
    require_system_threads()


def test_a_thread_starts() -> None:
    ran = threading.Event()
    thread = start_thread(ran.set, "kinesumer-test")
    assert ran.wait(10)
    thread.join(10)
    assert (thread.name, thread.daemon) == ("kinesumer-test", True)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError])
def test_a_refused_thread_is_an_error_of_the_library(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ThreadRefusedError, match="refuses the thread kinesumer-test"):
        start_thread(print, "kinesumer-test")
