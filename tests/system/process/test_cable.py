"""Checks that the cables of process tests leave nothing behind."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from contextlib import suppress

import pytest

from kinesumer.testing import EmbeddedAws, background
from tests.system.process.cable import Cable

pytestmark = pytest.mark.process


def test_a_cable_that_closes_while_clients_connect_leaves_no_connection_open() -> None:
    with (
        warnings.catch_warnings(record=True) as warned,
        background(EmbeddedAws()) as aws,
    ):
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(5):
            _close_under_connections(Cable(aws.port))
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


def _close_under_connections(cable: Cable) -> None:
    address = "127.0.0.1", int(cable.url.rpartition(":")[2])
    many, over = threading.Event(), threading.Event()

    def connect() -> None:
        made = []
        while not over.is_set():
            with suppress(OSError):
                made.append(socket.create_connection(address, timeout=1))
            if len(made) == 20:
                many.set()
        for connection in made:
            connection.close()

    thread = threading.Thread(target=connect)
    thread.start()
    many.wait(30)
    cable.close()
    over.set()
    thread.join()
