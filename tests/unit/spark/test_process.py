"""Test what a process of Spark sets up: garbage, SIGTERM, warnings and one loop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.spark.process import (
    FILE,
    for_each,
    run_on_loop,
    stop_on_sigterm,
    warn_of_other_loads,
)
from tests.support.spark_query import World, simulated


def test_a_load_warns_of_another_one_that_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"SPARK_LOCAL_DIRS": f"{tmp_path},/elsewhere"}
    warn_of_other_loads(["orders"], environment)
    assert not caplog.records
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as other:
        with (tmp_path / FILE).open("a") as file:
            file.write(f"{other.pid} payments, refunds\n")
        warn_of_other_loads(["orders"], environment)
        other.communicate(b"\n")
    assert "through another load() (payments, refunds)" in caplog.text
    caplog.clear()
    warn_of_other_loads(["orders"], environment)
    assert not caplog.records


def test_without_a_directory_of_the_application_nothing_is_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_other_loads(["orders"], {})
    warn_of_other_loads(["orders"], {"SPARK_LOCAL_DIRS": str(tmp_path / "gone")})
    assert not caplog.records
    assert not list(tmp_path.iterdir())


@pytest.fixture
def handler() -> Iterator[object]:
    before = signal.getsignal(signal.SIGTERM)
    yield before
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handler")
def test_the_first_sigterm_raises_and_the_second_is_ignored() -> None:
    stop_on_sigterm()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    signal.raise_signal(signal.SIGTERM)


def test_a_thread_beside_the_main_one_sets_no_handler(handler: object) -> None:
    thread = threading.Thread(target=stop_on_sigterm)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is handler


@simulated()
async def test_work_on_many_items_stops_at_the_first_error(world: World) -> None:
    done = []

    async def work(item: int) -> None:
        await asyncio.sleep(item)
        if item == 3:
            raise SourceUnavailableError("three")
        done.append(item)

    with pytest.raises(SourceUnavailableError, match="three"):
        await for_each(range(1_000), work)
    assert done == [0, 1, 2]


def test_a_process_has_one_loop() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert run_on_loop(loop()) is run_on_loop(loop())
