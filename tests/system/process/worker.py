"""One client process of a fleet, run as ``python -m tests.system.process.worker``.

The process uses the public API only. It writes each handled record to its journal,
unbuffered, so that a SIGKILL loses no entry. It reads orders as JSON from a pipe, and
exits at the end of the pipe, because then its parent process has ended. It replaces the
wall clock first, before an imported module can refer to the real one.
"""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.system.process import machine

machine.install()

from kinesumer import (
    AssignedShard,
    Batch,
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
from kinesumer.testing.trial.child import follow_parent, make_client
from kinesumer.testing.trial.journal import JournalWriter, LineWriter, now
from tests.system.process.client import (
    DEATH_STATUS,
    Note,
    Orders,
    Settings,
    notes_path,
)

REFRESH_SECONDS = 0.2
CALLBACK_SECONDS = 0.02  # time that on_assigned takes
BAD_EVERY = 50  # every 50th record always fails


class WorkerJournal(JournalWriter):
    """The records that a client handled, and its notes in a file beside them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.output, settings.name)
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
        self._client = make_client(settings, stop_signals=False)
        self._is_leaving = False
        self.status: int | None = None  # the exit status, at the end of the client

    async def run(self) -> int:
        self.status = await self._run()
        return self.status

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, print_tasks)
        follow_parent(lambda line: loop.call_soon_threadsafe(self.obey, line))
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

    def obey(self, line: bytes) -> None:
        self.orders = orders = msgspec.json.decode(line, type=Orders)
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
        self._client = make_client(settings, stop_signals=False)
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


def run_blocking(settings: Settings) -> int:
    """Run the blocking client until SIGTERM. It obeys no orders."""
    follow_parent()
    journal = WorkerJournal(settings)
    calls = Calls(Orders, settings, journal)
    with blocking.Kinesumer(
        settings.names.app,
        table=settings.names.table,
        client_id=settings.name,
        config=settings.config,
        stop_signals=True,
    ) as client:
        client.run(
            settings.streams,
            calls.thread,
            start=Start.TRIM_HORIZON,
            dead_letters=calls.bury,
        )
    return 0


def main(argument: str) -> int:
    settings = msgspec.json.decode(argument, type=Settings)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    if settings.blocking:
        return run_blocking(settings)
    worker = Worker(settings)
    try:
        return asyncio.run(worker.run())
    except RuntimeError as error:
        # To end, asyncio.run() starts a thread, which the system may refuse.
        if str(error) != machine.NO_THREAD or worker.status is None:
            raise
        return worker.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
