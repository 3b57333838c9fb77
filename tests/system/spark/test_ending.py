"""SIGTERM to the driver's Python process unwinds to the reader's ``stop()``."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from kinesumer.spark.runtime.jvm import stop_on_sigterm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def handler() -> Iterator[object]:
    before = signal.getsignal(signal.SIGTERM)
    yield before
    signal.signal(signal.SIGTERM, before)


def test_the_first_sigterm_unwinds_and_the_second_disturbs_nothing() -> None:
    stop_on_sigterm()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    signal.raise_signal(signal.SIGTERM)


def test_a_thread_beside_the_main_one_changes_nothing(handler: object) -> None:
    thread = threading.Thread(target=stop_on_sigterm)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is handler
