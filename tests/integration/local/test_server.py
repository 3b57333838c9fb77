"""The embedded AWS stops in good order."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest

from kinesumer.local import EmbeddedAws


@pytest.mark.parametrize("turns", range(5))
async def test_who_connects_while_it_stops_is_not_left_waiting(turns: int) -> None:
    async with EmbeddedAws() as aws:
        caller = socket.create_connection(("127.0.0.1", aws.port), timeout=5)
        for _ in range(turns):
            await asyncio.sleep(0)
    with caller, suppress(ConnectionResetError):
        assert await asyncio.to_thread(caller.recv, 1) == b""
