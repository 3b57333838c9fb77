"""Test leaving the group while the name server doesn't respond."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

import pytest

from kinesumer import Config, Kinesumer, Start
from kinesumer.aws.http import addresses as address_cache
from kinesumer.errors import CommitTimeoutError
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.server import background

HANGS_SECONDS = 60.0


class NameServer:
    """Replaces the system's look-ups. They work until the test makes them hang."""

    def __init__(self) -> None:
        self.hangs, self.ends = threading.Event(), threading.Event()
        self.asked, self.given_up = threading.Event(), threading.Event()
        self._look_up = socket.getaddrinfo

    def look_up(self, *arguments: Any, **options: Any) -> Any:
        if not self.hangs.is_set():
            return self._look_up(*arguments, **options)
        self.asked.set()
        self.ends.wait(HANGS_SECONDS)
        self.given_up.set()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.ends.set()


def test_leaving_waits_for_no_name_server(
    environment: pytest.MonkeyPatch, names: NameServer
) -> None:
    environment.setattr(address_cache, "CACHE_SECONDS", 0.0)
    aws = EmbeddedAws()
    config = Config(
        heartbeat_interval_seconds=0.2,
        lease_duration_seconds=1.0,
        drain_timeout_seconds=1.0,
    )

    async def live(running: contextlib.ExitStack) -> None:
        made = Kinesumer("app", table="kinesumer-state-store", config=config)
        async with made as client:
            async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
                break
            names.hangs.set()
            await asyncio.to_thread(running.close)
            while not names.asked.is_set():
                await asyncio.sleep(0.01)

    with contextlib.ExitStack() as running:
        running.enter_context(background(aws))
        for name, value in aws.environment().items():
            environment.setenv(name, value.replace("127.0.0.1", "localhost"))
        aws.create_table()
        aws.create_stream("orders")
        aws.put("orders", b"data")
        with contextlib.suppress(CommitTimeoutError):
            asyncio.run(live(running))
    # asyncio.run() waits for asyncio's threads, but the look-up still hangs elsewhere.
    assert not names.given_up.is_set()
