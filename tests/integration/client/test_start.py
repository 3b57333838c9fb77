"""Test that a client starts without metadata, and after what the system refused."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading

import pytest

from kinesumer import Config, Kinesumer, Start
from kinesumer.coordination import leader, lifecycle
from kinesumer.testing import EmbeddedAws

STORE_THREAD = "kinesumer-state-store"


class Refusals:
    """Refuses what a client's thread needs, a number of times."""

    def __init__(self, patch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self._start = threading.Thread.start
        self._new_loop = asyncio.events.new_event_loop
        patch.setattr(threading.Thread, "start", lambda thread: self.start(thread))
        patch.setattr(asyncio.events, "new_event_loop", self.new_event_loop)

    def start(self, thread: threading.Thread) -> None:
        if thread.name == STORE_THREAD and self.left > 1:
            self.left -= 1
            raise RuntimeError("can't start new thread")
        self._start(thread)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        if threading.current_thread().name == STORE_THREAD and self.left == 1:
            self.left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._new_loop()


async def test_it_starts_when_its_thread_and_the_descriptors_are_granted(
    kinesumer_aws: EmbeddedAws,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"one", "key")
    monkeypatch.setattr(lifecycle, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(leader, "FIRST_PLAN_DELAY_SECONDS", 0.0)
    refusals = Refusals(monkeypatch, times=3)
    config = Config(rebalance_delay_seconds=0.1, leader_interval_seconds=0.1)
    async with Kinesumer("app", config=config) as client:
        async for record in client.consume("orders", start=Start.TRIM_HORIZON):
            assert record.data == b"one"
            break
    assert not refusals.left
    refused = [r.getMessage() for r in caplog.records if "trying again" in r.message]
    assert len(refused) == 3
    assert "can't start new thread" in refused[0]
    assert "Too many open files" in refused[2]


HIDE = """
import importlib.metadata

def hidden(name):
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.Distribution.from_name = hidden
importlib.metadata.distributions = lambda **_: iter(())
"""
PROGRAM = """
from kinesumer import Config
from kinesumer.blocking import Kinesumer, Producer

with Producer("orders") as producer:
    producer.put(b"one", partition_key="key").result()
with Kinesumer("app", config=Config(heartbeat_interval_seconds=0.3)) as client:
    print(next(client.consume("orders", start="TRIM_HORIZON")).data)
"""
COMMAND = """
from kinesumer.ops.cli.main import cli

cli(["--version"], prog_name="kinesumer")
"""


def output(program: str) -> str:
    return subprocess.check_output([sys.executable, "-c", HIDE + program], text=True)


def test_a_program_consumes_and_puts(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    assert output(PROGRAM) == "b'one'\n"


def test_the_command_does_not_know_its_version() -> None:
    assert output(COMMAND) == "kinesumer, version unknown\n"
