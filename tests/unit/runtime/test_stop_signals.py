"""Test the handlers of SIGINT and SIGTERM."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.runtime import stop_signals
from kinesumer.runtime.stop_signals import SIGNALS, StopSignals


class Calls(list[str]):
    """A log of calls."""

    def first(self) -> None:
        self.append("first")

    def second(self) -> None:
        self.append("second")

    def former(self, *_: object) -> None:
        self.append("former")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return a log, and let two signals in a row count as two."""
    monkeypatch.setattr(stop_signals, "DUPLICATE_SECONDS", 0.0)
    return Calls()


def test_the_first_signal_asks_and_the_second_one_acts_as_if_nobody_handled_it(
    calls: Calls,
) -> None:
    before = signal.signal(signal.SIGTERM, calls.former)
    try:
        with StopSignals(calls.first):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            assert calls == ["first", "former"]
            assert signal.getsignal(signal.SIGTERM) == calls.former
        assert signal.getsignal(signal.SIGTERM) == calls.former
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(KeyboardInterrupt), StopSignals(calls.first):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_the_second_signal_may_have_a_function(calls: Calls) -> None:
    with StopSignals(calls.first, calls.second):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert calls == ["first", "second"]


def test_a_copy_of_a_signal_does_not_count(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_signals, "DUPLICATE_SECONDS", 3600.0)
    with StopSignals(calls.first):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert calls == ["first"]


def test_former_handlers_are_restored(calls: Calls) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopSignals(calls.first):
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_other_threads_are_refused(calls: Calls) -> None:
    errors: list[Exception] = []

    def enter() -> None:
        try:
            StopSignals(calls.first).__enter__()
        except ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_ends_as_without_handlers(calls: Calls) -> None:
    with StopSignals(calls.first):
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert calls == []
