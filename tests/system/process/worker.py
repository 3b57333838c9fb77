"""One client process of a fleet, started by ``tests.system.process.launch``.

It uses the public API only, and writes each record down when it is handled, unbuffered:
what it handled before a SIGKILL stays known. Orders come as JSON lines on stdin; when
that ends, whoever started this is gone, and so goes this.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer import Config, Kinesumer, KinesumerError, Start, Stream
from tests.system.process import walls
from tests.system.process.calling import Calls
from tests.system.process.pressure import squeeze

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer import Record

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

REFRESH_SECONDS = 0.2


class StreamSettings(msgspec.Struct):
    """A stream to consume."""

    arn: str
    role_arn: str | None = None
    external_id: str | None = None


class Settings(msgspec.Struct):
    """What a worker is told when it starts."""

    app: str
    table: str
    client_id: str
    streams: list[StreamSettings]
    config: dict[str, Any]
    journal: str
    start: str = "TRIM_HORIZON"
    delay: float = 0.0
    """How long each record takes unless orders say otherwise."""
    runs: str = ""
    """How ``run()`` calls the handler: "record", "thread" or "batch"; empty: it isn't
    used."""
    concurrency: int = 1
    rejoins: bool = False
    """Consume again after an error of the handler, as a supervisor would."""


class Orders(msgspec.Struct):
    """What the handler does with the records to come; told on stdin."""

    delay: float = 0.0
    """Take this long for each record, without blocking the event loop."""
    block: float = 0.0
    """Block the event loop for this long, once."""
    spin: float = 0.0
    """Block the event loop for this long with every record, and never await."""
    fail: bool = False
    """Raise with the next record in hand."""
    leave_block: bool = False
    """Break out of the loop with the next record in hand."""
    commit: bool = False
    """Commit what is marked, with ``commit="manual"``."""
    consume: list[str] = []
    """Consume these streams from now on."""
    wall: float | None = None
    """Put the wall clock that many seconds ahead."""
    squeeze: float = 0.0
    """Have no more memory for this long than ``left_bytes``."""
    left_bytes: int = 256 << 10


class Journal:
    """Lines in a file, each in one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def record(self, record: Record, began: float) -> None:
        """Write down a handled record: its effect on the world."""
        number, _, key = record.data.decode().partition(" ")
        fence = record.fence
        place = [record.stream_arn, record.shard_id, record.sequence_number]
        part = record.sub_sequence_number
        self._write(
            ["handled", int(number), key, *place, part, fence.epoch, began, now()]
        )

    def event(self, name: str, text: str = "") -> None:
        """Write down anything else."""
        self._write(["event", name, text, now()])

    def _write(self, line: list[Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Sessions(logging.Handler):
    """Knows the session at hand, from what the library logs."""

    def __init__(self) -> None:
        super().__init__()
        self.latest = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Take in a registration, and that a session couldn't give up its shards."""
        text = record.getMessage()
        if text.startswith("registered as"):
            self.latest = vars(record)["session"]
        elif "positions may not be stored" in text or "is dead; registering" in text:
            self.latest = ""


class HandlerError(Exception):
    """What a handler was ordered to raise."""


class Worker:
    """Runs one client until it is told to leave, or until it can't go on."""

    def __init__(self, settings: Settings) -> None:
        self.orders = Orders()
        self._settings = settings
        self._journal = Journal(settings.journal)
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = [s.arn for s in settings.streams]
        self._client = self._new_client()
        self._told_to_leave = False
        self._sessions = Sessions()
        logging.getLogger("kinesumer").addHandler(self._sessions)

    async def run(self) -> int:
        """Return the exit status."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, tell_tasks)
        listen(lambda line: loop.call_soon_threadsafe(self.obey, line))
        while True:
            try:
                await self._consume()
            except HandlerError as error:
                self._journal.event("failed", type(error).__name__)
                self._gave_up()
                if self._told_to_leave or not self._settings.rejoins:
                    return 3
            except (KinesumerError, TimeoutError) as error:
                self._journal.event("failed", f"{type(error).__name__}: {error}")
                return 1
            else:
                self._journal.event("left")
                self._gave_up()
                return 0

    def _gave_up(self) -> None:
        """Write down the session that ended by giving up its shards first."""
        if self._sessions.latest:
            self._journal.event("gave up", self._sessions.latest)
        self._sessions.latest = ""

    def obey(self, line: str) -> None:
        """Take in orders."""
        self.orders = orders = msgspec.json.decode(line, type=Orders)
        if orders.wall is not None:
            walls.jump(orders.wall)
        if orders.squeeze:
            self._journal.event("squeezed", f"{orders.squeeze}")
            squeeze(orders.squeeze, orders.left_bytes)
        if orders.consume:
            self._streams = orders.consume
            self._in_background(self._refresh(orders.consume))

    async def _refresh(self, arns: list[str]) -> None:
        """Switch to streams, as soon as that is possible."""
        while arns is self._streams:
            try:
                await self._client.refresh(self._described(arns))
                return
            except KinesumerError as error:  # it is just starting
                self._journal.event("refresh", f"{type(error).__name__}: {error}")
                await asyncio.sleep(REFRESH_SECONDS)

    def _described(self, arns: list[str]) -> list[Stream]:
        known = {s.arn: s for s in self._settings.streams}
        found = [known.get(arn, StreamSettings(arn)) for arn in arns]
        return [
            Stream(s.arn, role_arn=s.role_arn, external_id=s.external_id) for s in found
        ]

    async def _consume(self) -> None:
        settings = self._settings
        streams, start = self._described(self._streams), Start(type=settings.start)
        self._client = self._new_client()
        async with self._client:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self._leave)
            if settings.runs:
                calls = Calls(lambda: self.orders, settings.delay, self._journal)
                await calls.run(self._client, streams, start, settings)
                return
            async for record in self._client.consume(streams, start=start):
                began, orders = now(), self.orders
                await self._handle(record, orders)
                self._journal.record(record, began)
                if settings.config.get("commit") == "manual":
                    self._client.ack(record)
                if orders.leave_block:
                    break

    def _new_client(self) -> Kinesumer:
        settings = self._settings
        return Kinesumer(
            settings.app,
            table=settings.table,
            client_id=settings.client_id,
            config=Config(**settings.config),
        )

    def _leave(self) -> None:
        self._told_to_leave = True
        self._in_background(self._client.leave())

    async def _handle(self, record: Record, orders: Orders) -> None:
        if orders.block:
            orders.block, seconds = 0.0, orders.block
            self._journal.event("blocking", record.shard_id)
            time.sleep(seconds)  # noqa: ASYNC251 - what users do by mistake
            self._journal.event("unblocked")
        if orders.spin:
            time.sleep(orders.spin)  # noqa: ASYNC251
        if orders.fail:
            orders.fail = False
            self._journal.event("raising", record.data.decode())
            raise HandlerError
        if orders.commit:
            orders.commit = False
            self._in_background(self._commit())
        if delay := orders.delay or self._settings.delay:
            await asyncio.sleep(delay)

    async def _commit(self) -> None:
        try:
            await self._client.commit()
        except KinesumerError as error:
            self._journal.event("commit", f"{type(error).__name__}: {error}")
        else:
            self._journal.event("commit", "stored")

    def _in_background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def tell_tasks() -> None:
    """Print where every task is: for tests that failed."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


def listen(tell: Callable[[str], object]) -> None:
    """Pass on the lines of stdin, and die when it ends."""

    def read() -> None:
        try:
            for line in sys.stdin:
                tell(line)
        finally:
            os._exit(9)

    threading.Thread(target=read, daemon=True).start()


def main(settings: str) -> int:
    """Run one worker; return its exit status."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    return asyncio.run(Worker(msgspec.json.decode(settings, type=Settings)).run())
