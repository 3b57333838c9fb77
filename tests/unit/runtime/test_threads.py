"""Test calls in threads, and which errors say that the system refuses a resource."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from kinesumer.blocking import Kinesumer, Producer, create_table
from kinesumer.errors import (
    ConfigurationError,
    SourceUnavailableError,
    ThreadRefusedError,
)
from kinesumer.runtime import threads as module
from kinesumer.runtime.threads import (
    NotCalledError,
    NoThreadError,
    Threads,
    is_refusal,
    refusal_errors,
    require_system_threads,
    start_thread,
)

VARIABLE: ContextVar[str] = ContextVar("variable")
PATIENCE_SECONDS = 30.0


class System:
    """Starts threads, or refuses to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refusal: BaseException | None = None
        self.refused = 0
        start = threading.Thread.start

        def start_or_refuse(thread: threading.Thread) -> None:
            if self.refusal is None:
                return start(thread)
            self.refused += 1
            raise self.refusal

        patch.setattr(threading.Thread, "start", start_or_refuse)

    def refuse(self, error: BaseException | None = None) -> None:
        self.refusal = error or RuntimeError("can't start new thread")

    def grant(self) -> None:
        self.refusal = None


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    return System(monkeypatch)


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(2, "test")
    yield threads
    threads.close()


async def test_a_function_runs_in_a_thread_with_the_callers_context(
    threads: Threads,
) -> None:
    VARIABLE.set("mine")

    def function() -> tuple[bool, str]:
        return threading.current_thread() is threading.main_thread(), VARIABLE.get()

    assert await threads.call(function) == (False, "mine")


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ValueError, ValueError), (SystemExit, SystemExit), (StopIteration, RuntimeError)],
)
async def test_an_error_of_the_function_is_the_callers(
    threads: Threads, error: type[BaseException], raised: type[BaseException]
) -> None:
    def function() -> None:
        raise error

    with pytest.raises(raised):
        await threads.call(function)


@pytest.mark.parametrize("error", [None, MemoryError()])
async def test_a_call_waits_until_the_system_grants_a_thread(
    threads: Threads,
    system: System,
    caplog: pytest.LogCaptureFixture,
    error: BaseException | None,
) -> None:
    system.refuse(error)
    calls = [asyncio.create_task(threads.call(threading.get_ident)) for _ in range(5)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while system.refused < 10:
            await asyncio.sleep(0.01)
        assert not any(call.done() for call in calls)
        system.grant()
        assert threading.get_ident() not in await asyncio.gather(*calls)
    first, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("test needs a thread, trying again: ")
    assert last == "threads of test can start again"


async def test_a_call_that_waits_for_a_thread_runs_once(
    threads: Threads, system: System
) -> None:
    system.refuse()
    calls: list[int] = []
    waiting = asyncio.create_task(threads.call(lambda: calls.append(1)))
    await asyncio.sleep(0.1)
    system.grant()
    await waiting
    await asyncio.sleep(0.05)
    assert calls == [1]


async def test_a_thread_that_exists_makes_the_calls_meanwhile(
    threads: Threads, system: System
) -> None:
    hold, holds = threading.Event(), threading.Event()

    def work() -> None:
        holds.set()
        assert hold.wait(PATIENCE_SECONDS)

    busy = asyncio.create_task(threads.call(work))
    while not holds.is_set():
        await asyncio.sleep(0.01)
    system.refuse()
    waiting = asyncio.create_task(threads.call(threading.get_ident))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    hold.set()
    await busy
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting


async def test_a_cancelled_call_that_waits_for_a_thread_never_runs(
    threads: Threads, system: System
) -> None:
    system.refuse()
    calls: list[int] = []
    waiting = asyncio.create_task(threads.call(lambda: calls.append(1)))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    system.grant()
    assert await threads.call(lambda: "next") == "next"
    assert not calls


async def test_a_call_that_is_not_needed_any_more_gives_up(
    threads: Threads, system: System
) -> None:
    system.refuse()
    over: list[bool] = []
    waiting = asyncio.create_task(threads.call(print, lambda: bool(over)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    over.append(True)
    with pytest.raises(NotCalledError):
        await waiting


async def test_at_the_end_of_the_interpreter_a_call_fails(
    threads: Threads, system: System
) -> None:
    system.refuse(RuntimeError("can't create new thread at interpreter shutdown"))
    with pytest.raises(NoThreadError, match="keep the main thread alive"):
        await threads.call(print)


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
