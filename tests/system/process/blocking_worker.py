"""Consume with the blocking client in a worker, whose records may end the process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesumer import Config, Start
from kinesumer.blocking import Kinesumer
from kinesumer.testing.trial.journal import JournalWriter, now
from tests.system.process.handlers import Calls
from tests.system.process.worker import (
    Orders,
    Settings,
    described,
    die_of,
    listen,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def run(settings: Settings, orders: Connection) -> int:
    """Run one client until SIGTERM. It obeys no orders."""
    listen(orders, lambda _: None)
    journal = JournalWriter(settings.journal)
    streams, start = described(settings.streams), Start(type=settings.start)
    with Kinesumer(
        settings.app,
        table=settings.table,
        client_id=settings.client_id,
        config=Config(**settings.config),
        stop_signals=True,
    ) as client:
        if settings.runs:
            calls = Calls(Orders, settings, journal)
            client.run(streams, calls.thread, start=start, dead_letters=calls.bury)
            return 0
        for record in client.consume(streams, start=start):
            began = now()
            die_of([record], settings, journal)
            time.sleep(settings.delay)
            journal.record(record, began)
            if settings.config.get("commit") == "manual":
                client.ack(record)
    return 0
