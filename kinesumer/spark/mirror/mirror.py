"""A query's positions in the state store, where it is a member of its group.

What the driver calls, all on its background loop::

    mirror = await open_mirror(options)  # registers; raises GroupBusyError, …
    offset = await mirror.stored()  # where the group is: startingPosition=checkpoint
    mirror.committed(offset)  # after each batch: its end, or the next one's start
    await mirror.stop()  # in the reader's stop(): last positions, Leave

``kinesumer.spark.runtime.jvm.stop_on_sigterm()``, called once in the main thread, makes
Spark call the reader's ``stop()`` when it ends the driver's Python process.
"""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.aws.dynamodb import open_store
from kinesumer.config import Config
from kinesumer.consuming.streams import open_streams
from kinesumer.coordination.paced_store import PacedStore
from kinesumer.coordination.pauses import require_not_paused
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.startup_checks import check_group, require_no_go_clients
from kinesumer.coordination.store_queries import read_with_listing
from kinesumer.core import lineage
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import QUERY_ID
from kinesumer.model.streams import Start
from kinesumer.model.validation import validate_name
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog, logger
from kinesumer.spark.mirror.membership import Membership
from kinesumer.spark.mirror.shard_row_mirror import ShardRowMirror
from kinesumer.spark.offsets.model import END, After, Offset, StreamOffset
from kinesumer.spark.options.positions import UNKNOWN
from kinesumer.spark.runtime.sources import sources
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.consuming.streams import OpenStream
    from kinesumer.coordination.startup_checks import Identity
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import Shard
    from kinesumer.spark.offsets.model import Offset, ShardPosition
    from kinesumer.spark.options.parser import ReadOptions

STOP_SECONDS = 4.0
"""Maximum seconds for the last positions: Spark may kill the process soon."""
LEAVE_SECONDS = 2.0
PAUSE_FACTOR = 4
"""The pause after a write is at least so many times its duration."""
KEEP_SECONDS = 600.0
"""The period of pruning rows of shards that Kinesis has dropped."""


class Mirror:
    """Writes a query's positions to the group's shard rows."""

    def __init__(
        self, context: ClientContext, table: str, streams: Mapping[str, OpenStream]
    ) -> None:
        self._membership = Membership(context, frozenset(streams), self._wake)
        store = PacedStore(
            context.store,
            context.clock,
            context.random,
            lambda: self._membership.is_throttled,
        )
        self._context = context = replace(context, store=store)
        self._table = table
        self._streams = streams
        self._rows = {arn: ShardRowMirror(context, s) for arn, s in streams.items()}
        self._offset: Offset = {}
        self._changed = {arn: asyncio.Event() for arn in streams}
        self._loop = asyncio.get_running_loop()
        self._identity: Identity | None = None
        self._checked = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register the query as the group's only member.

        Raises GroupBusyError if others hold the group or an operator paused a stream of
        the query, and StreamRecreatedError.
        """
        context = self._context
        self._identity = await check_group(context, None)
        await require_no_go_clients(context)
        for stream in self._streams.values():
            row = await context.read(rows.stream_key(context.app, stream.arn))
            if row is not None:
                check_identity(rows.read_stream(row), stream.info)
        await self._membership.join()
        try:
            # From now on, operators see the query and can't pause its streams.
            await require_not_paused(context, self._streams)
        except BaseException:
            await self._membership.leave()
            raise
        self._tasks = [
            self._loop.create_task(self._run(arn), name="kinesumer-mirror")
            for arn in self._streams
        ]

    async def stored(self) -> Offset:
        """Return the group's positions in all streams of the query.

        Raises ConfigurationError for a stream without rows.
        """
        return await stored_offset(self._context, self._table, self._streams)

    def committed(self, offset: Offset) -> None:
        """Note the query's offset, to be written at the next commit interval.

        Returns at once, on any thread. Raises GroupBusyError if plain clients or
        another query took the group over while this process was suspended. Other
        failures are only logged.
        """
        if self._membership.refused is not None:
            raise self._membership.refused
        if offset != self._offset:
            self._offset = offset
            self._loop.call_soon_threadsafe(self._wake)

    async def stop(self) -> None:
        """Write the last positions and leave the group, within a few seconds."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._write_last()
        except Exception as error:
            logger.warning(
                "can't store all last positions (%s): plain clients may repeat "
                "records; queries continue by Spark's log",
                str(error) or f"no answer within {STOP_SECONDS:g} s",
            )
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._membership.leave()
        except Exception as error:
            logger.warning(
                "can't leave the group (%s): it becomes free when the lease expires",
                str(error) or f"no answer within {LEAVE_SECONDS:g} s",
            )

    # --- in the background ------------------------------------------------------------

    async def _run(self, arn: str) -> None:
        """Write a stream's new positions, at most once per commit interval.

        A failed write is retried. Only a group that was taken over ends the query.
        """
        clock, interval = (
            self._context.clock,
            self._context.config.commit_interval_seconds,
        )
        changed, next_keep = self._changed[arn], clock.now() + KEEP_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_keep - clock.now())):
                    await changed.wait()
            changed.clear()
            began = clock.now()
            keeps = began >= next_keep
            if keeps:
                next_keep = began + KEEP_SECONDS
            if self._membership.member is None or arn not in self._offset:
                continue  # the registration or the first batch sets the event again
            if not await self._try(arn, keeps):
                changed.set()
            took = min(clock.now() - began, interval)
            await asyncio.sleep(max(interval, took * PAUSE_FACTOR))

    def _wake(self) -> None:
        for changed in self._changed.values():
            changed.set()

    async def _try(self, arn: str, keeps: bool) -> bool:
        """Write a stream's positions; False: try again soon."""
        what = f"storing positions of {self._streams[arn].label}"
        try:
            if keeps:
                await self._rows[arn].keep()
            done = await self._write(arn)
        except Exception as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            self._context.failure_log.record_failure(what, error)
            return False
        self._context.failure_log.record_success(what)
        return done

    async def _write(self, arn: str) -> bool:
        member = self._membership.member
        if member is None:
            return True
        await self._check_group(member)
        return await self._rows[arn].sync(member, self._offset[arn].shards)

    async def _check_group(self, member: MemberRow) -> None:
        """Warn in a new session if the state store was recreated or restored."""
        if member.session == self._checked:
            return
        found = await check_group(self._context, None)
        if self._identity not in (None, found):
            logger.warning(
                "the state store of app %s was recreated or restored: this query "
                "writes its positions to it",
                self._context.app,
            )
        self._identity, self._checked = found, member.session

    async def _write_last(self) -> None:
        member, offset = self._membership.member, self._offset
        if member is None:
            return
        todo = (
            self._rows[arn].finish(member, of_stream.shards)
            for arn, of_stream in offset.items()
            if arn in self._rows
        )
        # Wait for all, even if one fails.
        found = await asyncio.gather(*todo, return_exceptions=True)
        for answer in found:
            if answer is not None:
                raise answer


async def open_mirror(options: ReadOptions) -> Mirror:
    """Register a query with ``app`` and ``table`` as its group's only member.

    An unclean predecessor costs its lease (8 s). Raises GroupBusyError if plain clients
    or another query are alive, StreamRecreatedError, GroupBusyError,
    ConfigurationError for a name that can't be a key, and what opening a state store
    raises.
    """
    assert options.app is not None
    assert options.table is not None
    app = validate_name("app", options.app)
    shared = sources(options.connection)
    store = await open_store(shared.clients, validate_name("table", options.table))
    host, clock = socket.gethostname(), SystemClock()
    context = ClientContext(
        app=app,
        client_id=QUERY_ID,
        config=Config(),
        store=store,
        clock=clock,
        random=random.Random(),
        # All queries have one client id: sessions tell where they run.
        new_id=lambda: f"{host}-{uuid.uuid4().hex}",
        failure_log=FailureLog(clock),
    )
    streams = await open_streams(
        context, options.streams, Start.TRIM_HORIZON, shared.open
    )
    mirror = Mirror(context, options.table, streams)
    await mirror.start()
    return mirror


async def stored_offset(
    context: ClientContext, table: str, streams: Mapping[str, OpenStream]
) -> Offset:
    """Return the group's positions in all shards, by stream.

    Raises ConfigurationError for a stream without rows, and StreamRecreatedError.
    """
    return {
        arn: await _of_stream(context, table, stream) for arn, stream in streams.items()
    }


async def _of_stream(
    context: ClientContext, table: str, stream: OpenStream
) -> StreamOffset:
    found = await context.read(rows.stream_key(context.app, stream.arn))
    row = rows.read_stream(found) if found else None
    if row is None or not row.baseline:
        raise ConfigurationError(
            f"startingPosition=checkpoint: table {table} holds no positions of app "
            f"{context.app!r} for stream {stream.arn}; check app and table, or begin "
            "with LATEST, TRIM_HORIZON or AT_TIMESTAMP"
        )
    check_identity(row, stream.info)
    known, listed = await read_with_listing(context, stream)
    return StreamOffset(stream.info.created_at, places(stream.arn, known, listed))


def places(
    arn: str, known: Sequence[ShardRow], listed: Sequence[Shard]
) -> dict[str, ShardPosition]:
    """Return the position in each shard that Kinesis still lists.

    Shards that wait for their parents are included: a shard that an offset omits counts
    as read if a descendant is named. The time of a position is known for quiet shards
    only, whose rows store it.
    """
    waiting = lineage.repairs(arn, known, listed).create
    ids = {shard.shard_id for shard in listed}
    return {
        row.key.shard_id: _place(row)
        for row in [*known, *waiting]
        if row.key.shard_id in ids
    }


def _place(row: ShardRow) -> ShardPosition:
    if row.ended:
        return END
    if row.position is None:
        return row.start
    return After(row.position, row.read_until or UNKNOWN)
