"""One client process of a fleet, started by ``tests.system.process.client``.

The process uses the public API only. It writes each handled record to its journal,
unbuffered, so that a SIGKILL loses no entry. It reads orders as JSON from a pipe, and
exits at the end of the pipe, because then its parent process has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from kinesumer import (
    AssignedShard,
    Batch,
    Config,
    Kinesumer,
    KinesumerError,
    Middleware,
    Record,
    RetryPolicy,
    Start,
    Stream,
    blocking,
)
from kinesumer.dead_letters import DeadLetter
from kinesumer.testing.trial.journal import JournalWriter, LineWriter, now
from tests.system.process import machine

REFRESH_SECONDS = 0.2
CALLBACK_SECONDS = 0.02  # time that on_assigned takes
BAD_EVERY = 50  # every 50th record always fails
DEATH_STATUS = 70  # of a process that a record has killed


@dataclass(kw_only=True)
class Settings:
    """The settings of a worker, passed as its argument."""

    app: str
    table: str
    client_id: str
    streams: list[Stream]
    config: dict[str, Any]
    journal: str
    delay: float = 0.0  # seconds of work per record, unless orders change it
    # The kind of handler for ``run()``: "record", "thread" or "batch". If it is empty,
    # the worker iterates over records.
    runs: str = ""
    concurrency: int = 1
    # Use the blocking client, whose handlers run in threads.
    blocking: bool = False
    callbacks: bool = False  # note in the journal when shards are assigned and revoked
    # The numbers of records that end the process at once.
    deadly: list[int] = field(default_factory=list)
    # Consume again after an error of the handler, as a supervisor would.
    rejoins: bool = False


@dataclass
class Orders:
    """The handler's behaviour from now on, as read from the pipe."""

    # Take this long for each record, without blocking the event loop.
    delay: float = 0.0
    block: float = 0.0  # block the event loop for this long, once
    # Block the event loop for this long with every record, and never await.
    spin: float = 0.0
    fail: bool = False  # raise an error at the next record
    # Consume these streams from now on.
    consume: list[Stream] = field(default_factory=list)
    wall: float | None = None  # set the wall clock ahead by these seconds
    squeeze: float = 0.0  # seconds with only ``left_bytes`` of memory
    left_bytes: int = 256 << 10
    # What the system refuses for ``refuse`` seconds.
    refused: list[str] = field(default_factory=list)
    refuse: float = 0.0


class Note(NamedTuple):
    """What a client did, beside handling records."""

    name: str
    text: str
    at: float


def notes_path(settings: Settings) -> str:
    return f"{settings.journal}.notes"


class WorkerJournal(JournalWriter):
    """The records that a client handled, and its notes in a file beside them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.journal, settings.client_id)
        self._notes = LineWriter(notes_path(settings))

    def note(self, name: str, text: str = "") -> None:
        self._notes.write(Note(name, text, now()))


class HandlerError(Exception):
    """The error that a handler raises if an order tells it to fail."""


class BadRecordError(Exception):
    """A record at which every handler fails."""


class Calls:
    """The handlers and their target of dead letters, which share state."""

    def __init__(
        self, orders: Callable[[], Orders], settings: Settings, journal: WorkerJournal
    ) -> None:
        self._orders, self._settings, self._journal = orders, settings, journal
        self._bad: dict[str, Record] = {}

    async def run(
        self,
        client: Kinesumer,
        streams: list[Stream],
        callbacks: dict[str, Any],
    ) -> None:
        settings = self._settings
        handlers: dict[str, Any] = {
            "record": self.record,
            "thread": self.thread,
            "batch": self.batch,
        }
        await client.run(
            streams,
            handlers[settings.runs],
            start=Start.TRIM_HORIZON,
            concurrency=settings.concurrency,
            dead_letters=self.bury,
            retries=RetryPolicy(max_attempts=2, initial_delay_seconds=0.05),
            middleware=[Middleware()],
            **callbacks,
        )

    async def record(self, record: Record) -> None:
        began = now()
        await asyncio.sleep(self._seconds)
        self._check([record])
        self._journal.record(record, began)

    def thread(self, record: Record) -> None:
        began = now()
        time.sleep(self._seconds)
        self._check([record])
        self._journal.record(record, began)

    async def batch(self, batch: Batch) -> None:
        began = now()
        await asyncio.sleep(self._seconds)
        self._check(batch.records)
        for record in batch.records:
            self._journal.record(record, began)

    async def bury(self, letter: DeadLetter) -> None:
        """Note in the journal that a failed record counts as handled."""
        text = letter.data.decode()
        self._journal.note("dead letter", text)
        if text in self._bad:  # else the record has killed its processes
            self._journal.record(self._bad.pop(text), now())

    @property
    def _seconds(self) -> float:
        return self._orders().delay or self._settings.delay

    def _check(self, records: Sequence[Record]) -> None:
        if self._settings.deadly:
            die_of(records, self._settings, self._journal)
            return
        for record in records:
            text = record.data.decode()
            if int(text.partition(" ")[0]) % BAD_EVERY == BAD_EVERY - 1:
                self._bad[text] = record
                raise BadRecordError(text)


class Worker:
    """Runs one client until it is told to leave, or until it fails."""

    def __init__(self, settings: Settings) -> None:
        self.orders = Orders()
        self._settings = settings
        self._journal = WorkerJournal(settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = settings.streams
        self._client = self._new_client()
        self._is_leaving = False
        self.status: int | None = None  # the exit status, at the end of the client

    async def run(self, orders: Connection) -> int:
        self.status = await self._run(orders)
        return self.status

    async def _run(self, orders: Connection) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, print_tasks)
        listen(orders, lambda order: loop.call_soon_threadsafe(self.obey, order))
        while True:
            try:
                await self._consume()
            except HandlerError as error:
                self._journal.note("failed", type(error).__name__)
                if self._is_leaving or not self._settings.rejoins:
                    return 3
            except (KinesumerError, TimeoutError) as error:
                self._journal.note("failed", f"{type(error).__name__}: {error}")
                return 1
            else:
                self._journal.note("left")
                return 0

    def obey(self, orders: Orders) -> None:
        self.orders = orders
        if orders.wall is not None:
            machine.jump(orders.wall)
        if orders.squeeze:
            self._journal.note("squeezed", f"{orders.squeeze}")
            machine.squeeze(orders.squeeze, orders.left_bytes)
        if orders.refused:
            self._journal.note("refused", " ".join(orders.refused))
            machine.refuse(orders.refused, orders.refuse)
        if orders.consume:
            self._streams = orders.consume
            self._in_background(self._refresh(orders.consume))

    async def _refresh(self, streams: list[Stream]) -> None:
        while streams is self._streams:
            try:
                await self._client.refresh(streams)
                return
            except KinesumerError as error:  # the client is still starting
                self._journal.note("refresh", f"{type(error).__name__}: {error}")
                await asyncio.sleep(REFRESH_SECONDS)

    async def _consume(self) -> None:
        settings = self._settings
        streams, start = self._streams, Start.TRIM_HORIZON
        self._client = self._new_client()
        async with self._client:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self._leave)
            if settings.runs:
                calls = Calls(lambda: self.orders, settings, self._journal)
                await calls.run(self._client, streams, self._callbacks())
                return
            callbacks = self._callbacks()
            async for record in self._client.consume(streams, start=start, **callbacks):
                began, orders = now(), self.orders
                await self._handle(record, orders)
                self._journal.record(record, began)

    def _callbacks(self) -> dict[str, Any]:
        """Return callbacks that write to the journal, if the settings ask for them."""
        if not self._settings.callbacks:
            return {}

        async def on_assigned(shard: AssignedShard) -> None:
            self._journal.note("assigned", _named(shard))
            await asyncio.sleep(CALLBACK_SECONDS)

        def on_revoked(shard: AssignedShard, reason: str) -> None:
            self._journal.note("revoked", f"{_named(shard)} {reason}")

        return {"on_assigned": on_assigned, "on_revoked": on_revoked}

    def _new_client(self) -> Kinesumer:
        settings = self._settings
        return Kinesumer(
            settings.app,
            table=settings.table,
            client_id=settings.client_id,
            config=Config(**settings.config),
        )

    def _leave(self) -> None:
        self._is_leaving = True
        self._in_background(self._client.leave())

    async def _handle(self, record: Record, orders: Orders) -> None:
        die_of([record], self._settings, self._journal)
        if orders.block:
            orders.block, seconds = 0.0, orders.block
            self._journal.note("blocking", record.shard_id)
            time.sleep(seconds)  # noqa: ASYNC251 - what users do by mistake
            self._journal.note("unblocked")
        if orders.spin:
            time.sleep(orders.spin)  # noqa: ASYNC251
        if orders.fail:
            orders.fail = False
            self._journal.note("raising", record.data.decode())
            raise HandlerError
        if delay := orders.delay or self._settings.delay:
            await asyncio.sleep(delay)

    def _in_background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def die_of(
    records: Sequence[Record], settings: Settings, journal: WorkerJournal
) -> None:
    """End the process at once, without any clean-up, at a deadly record."""
    for record in records:
        text = record.data.decode()
        if int(text.partition(" ")[0]) in settings.deadly:
            journal.note("dies", text)
            os._exit(DEATH_STATUS)


def _named(shard: AssignedShard) -> str:
    return f"{shard.stream_arn} {shard.shard_id} {shard.fence.epoch}"


def print_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


def listen(orders: Connection, obey: Callable[[Orders], object]) -> None:
    """Pass on the orders of a pipe, and end the process when the pipe ends."""

    def read() -> None:
        try:
            while True:
                obey(orders.recv())
        finally:
            os._exit(9)

    threading.Thread(target=read, daemon=True).start()


def run_blocking(settings: Settings, orders: Connection) -> int:
    """Run the blocking client until SIGTERM. It obeys no orders."""
    listen(orders, lambda _: None)
    journal = WorkerJournal(settings)
    calls = Calls(Orders, settings, journal)
    with blocking.Kinesumer(
        settings.app,
        table=settings.table,
        client_id=settings.client_id,
        config=Config(**settings.config),
        stop_signals=True,
    ) as client:
        client.run(
            settings.streams,
            calls.thread,
            start=Start.TRIM_HORIZON,
            dead_letters=calls.bury,
        )
    return 0


def main(settings: Settings, orders: Connection) -> int:
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    if settings.blocking:
        return run_blocking(settings, orders)
    worker = Worker(settings)
    try:
        return asyncio.run(worker.run(orders))
    except RuntimeError as error:
        # To end, asyncio.run() starts a thread, which the system may refuse.
        if str(error) != machine.NO_THREAD or worker.status is None:
            raise
        return worker.status
