"""Stores the positions of a query, the only member of its group, in the state store.

The driver makes these calls on its background loop::

    mirror = await open_mirror(options)  # registers; raises GroupBusyError, …
    offset = await mirror.stored()  # only for startingPosition=checkpoint
    mirror.committed(offset)  # whenever a batch is committed, with the batch's end
    await mirror.stop()  # in the reader's stop(); writes the last positions

Spark ends the driver's Python process with SIGTERM. It calls the reader's ``stop()``
only if ``stop_on_sigterm()`` was called in the main thread.
"""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kinesumer.aws.dynamodb import open_store
from kinesumer.consuming.streams import OpenStream, open_streams
from kinesumer.coordination.app_count import AppCount
from kinesumer.coordination.membership import PRUNE_SECONDS
from kinesumer.coordination.pauses import require_not_paused
from kinesumer.coordination.shard_sync import check_identity, sync_shards
from kinesumer.coordination.startup_checks import (
    StoreIdentity,
    check_group,
    require_no_go_clients,
)
from kinesumer.coordination.state_store import PacedStore
from kinesumer.coordination.store_queries import read_stream_row, read_with_listing
from kinesumer.core import lineage
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import END, After, Offset, ShardPosition, StreamOffset
from kinesumer.model.rows import QUERY_ID, MemberRow, ShardRow
from kinesumer.model.streams import Shard, Start
from kinesumer.model.validation import validate_name
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import cancel_and_wait, wait_and_clear
from kinesumer.spark.membership import Membership
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.options.streams import UNKNOWN
from kinesumer.spark.process_cache import sources
from kinesumer.spark.shard_row_mirror import ShardRowMirror

# The maximum time for writing the last positions when the query stops, and then for
# leaving the group. It is short, because Spark may soon kill the process.
STOP_SECONDS = 3.0


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
        self._identity: StoreIdentity | None = None
        self._checked = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register the query as the group's only member.

        Raises GroupBusyError if other members are alive, or if an operator has paused
        one of the query's streams. Raises StreamRecreatedError if the group's positions
        belong to a deleted stream of the same name.
        """
        context = self._context
        self._identity = await check_group(context, None)
        await require_no_go_clients(context)
        for stream in self._streams.values():
            row = await read_stream_row(context, stream.arn)
            if row is not None:
                check_identity(row, stream.info)
        await self._membership.join()
        try:
            # Operators now see the query as a member and can't pause its streams.
            await require_not_paused(context, self._streams)
        except BaseException:
            await self._membership.leave()
            raise
        self._tasks = [
            self._loop.create_task(self._run(arn), name="kinesumer-mirror")
            for arn in self._streams
        ]
        counting = self._loop.create_task(AppCount(context, self._streams.values).run())
        self._tasks.append(counting)

    def apps(self, arn: str) -> int:
        """Return how many apps of the state store poll a stream."""
        return self._streams[arn].apps

    async def stored(self) -> Offset:
        """Return the group's positions in all streams of the query.

        Raises ConfigurationError if the group has no positions in a stream, and
        StreamRecreatedError if they belong to a deleted stream of the same name.
        """
        return {
            arn: await self._stored(stream) for arn, stream in self._streams.items()
        }

    async def _stored(self, stream: OpenStream) -> StreamOffset:
        context = self._context
        row = await read_stream_row(context, stream.arn)
        if row is None or not row.baseline:
            raise ConfigurationError(
                f"startingPosition=checkpoint: table {self._table} holds no positions "
                f"of app {context.app!r} for stream {stream.arn}; check app and table, "
                "or begin with LATEST, TRIM_HORIZON or AT_TIMESTAMP"
            )
        check_identity(row, stream.info)
        stored, listed = await read_with_listing(context, stream)
        return StreamOffset(
            stream.info.created_at, positions_of(stream.arn, stored, listed)
        )

    def committed(self, offset: Offset) -> None:
        """Accept the query's offset, which a background task writes to the table.

        May be called on any thread, and doesn't wait for the write. Raises
        GroupBusyError if clients or another query took over the group, for example
        while this process was suspended. Other failures are only logged.
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
        await cancel_and_wait(*tasks)
        with _warn_on_error(
            "can't store all last positions (%s): plain clients may repeat records; "
            "queries continue by Spark's log"
        ):
            async with asyncio.timeout(STOP_SECONDS):
                await self._write_last()
        with _warn_on_error(
            "can't leave the group (%s): it becomes free when the lease expires"
        ):
            async with asyncio.timeout(STOP_SECONDS):
                await self._membership.leave()

    # --- in the background ------------------------------------------------------------

    async def _run(self, arn: str) -> None:
        """Write a stream's new positions, at most once per commit interval.

        A failed write is logged and retried: it never makes the query fail.
        """
        clock = self._context.clock
        changed, next_prune = self._changed[arn], clock.now() + PRUNE_SECONDS
        while True:
            await wait_and_clear(changed, next_prune - clock.now())
            # Now and then, delete the rows of shards that Kinesis no longer lists.
            prunes = clock.now() >= next_prune
            if prunes:
                next_prune = clock.now() + PRUNE_SECONDS
            if self._membership.member is None or arn not in self._offset:
                continue  # registering or the first commit sets the event again
            if not await self._try(arn, prunes=prunes):
                changed.set()
            await asyncio.sleep(self._context.config.commit_interval_seconds)

    def _wake(self) -> None:
        for changed in self._changed.values():
            changed.set()

    async def _try(self, arn: str, *, prunes: bool) -> bool:
        """Write a stream's positions. Return False if a call must follow soon."""
        what = f"storing positions of {self._streams[arn].label}"
        try:
            if prunes:
                await sync_shards(self._context, self._streams[arn])
            done = await self._write(arn)
        except Exception as error:
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
        """Warn if the table was recreated or restored; check once for each session."""
        if member.session == self._checked:
            return
        identity = await check_group(self._context, None)
        if self._identity not in (None, identity):
            logger.warning(
                "the state store of app %s was recreated or restored: this query "
                "writes its positions to it",
                self._context.app,
            )
        self._identity, self._checked = identity, member.session

    async def _write_last(self) -> None:
        member, offset = self._membership.member, self._offset
        if member is None:
            return
        # If the write for one stream fails, those for the other streams continue.
        results = await asyncio.gather(
            *(
                self._rows[arn].finish(member, of_stream.shards)
                for arn, of_stream in offset.items()
                if arn in self._rows
            ),
            return_exceptions=True,
        )
        for error in filter(None, results):
            raise error


@contextmanager
def _warn_on_error(text: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        logger.warning(text, str(error) or "no answer in time")


async def open_mirror(options: ReadOptions) -> Mirror:
    """Register a query that has the options ``app`` and ``table``.

    If an earlier query of the app was killed, wait until its lease expires (8 s).
    Raises ConfigurationError for an invalid app or table name, and the errors of
    ``Mirror.start()`` and of opening the state store.
    """
    assert options.app is not None
    assert options.table is not None
    app = validate_name("app", options.app)
    shared = sources(options.connection)
    store = await open_store(shared.clients, validate_name("table", options.table))
    host, clock = socket.gethostname(), SystemClock()
    context = ClientContext.create(
        app=app,
        client_id=QUERY_ID,
        store=store,
        clock=clock,
        random=random.Random(),
        # All queries have the same client id. The host's name in the session's id shows
        # an operator where a query runs.
        new_id=lambda: f"{host}-{uuid.uuid4().hex}",
    )
    streams = await open_streams(
        context, options.streams, Start.TRIM_HORIZON, shared.open
    )
    mirror = Mirror(context, options.table, streams)
    await mirror.start()
    return mirror


def positions_of(
    arn: str, stored: Sequence[ShardRow], listed: Sequence[Shard]
) -> dict[str, ShardPosition]:
    """Return the group's position in each shard that Kinesis still lists.

    Shards that wait for their parents are included: an offset that names a descendant
    of a shard but not the shard itself would mean that the shard has been read. Most
    rows don't store the time of their position. Its time is then UNKNOWN.
    """
    waiting = lineage.repairs(arn, stored, listed).create
    ids = {shard.shard_id for shard in listed}
    return {
        row.key.shard_id: _position(row)
        for row in [*stored, *waiting]
        if row.key.shard_id in ids
    }


def _position(row: ShardRow) -> ShardPosition:
    if row.ended:
        return END
    if row.position is None:
        return row.start
    return After(row.position, row.read_until or UNKNOWN)
