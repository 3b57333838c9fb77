"""Test that functions run in threads, even if the system refuses some at first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from kinesumer.runtime import threads as module
from kinesumer.runtime.threads import NotCalledError, NoThreadError, Threads

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
