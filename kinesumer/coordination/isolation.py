"""Count owners' deaths at claims, and read the shards that killed their owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.suspects import Suspects, Turn
from kinesumer.coordination.held_shards import ProgressSource
from kinesumer.core.progress import after_death
from kinesumer.errors import PoisonRecordError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths, ShardRow
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows, shard_writes

OnRejected = Callable[[OwnedShard, ShardRow | None], None]


class IsolationGuard:
    """Decides how the shards of one session are read after deaths of their owners."""

    def __init__(
        self,
        context: ClientContext,
        session: str,
        streams: Mapping[str, OpenStream],
        delivery: ProgressSource,
        on_rejected: OnRejected,
    ) -> None:
        """``on_rejected`` handles a write that the store rejects."""
        self._context = context
        self._session = session
        self._streams = streams
        self._delivery = delivery
        self._on_rejected = on_rejected
        self._turn = Turn()

    def deaths_at_claim(self, row: ShardRow) -> Deaths | None:
        """Return the deaths to store with a claim, or None if no owner has died.

        A shard that another session owns is claimed only if that session is dead.
        """
        if row.owner in ("", self._session):
            return None
        stream = self._streams[row.key.stream_arn]
        now = stream.service_time.latest()
        return after_death(row, now if isfinite(now) else self._context.clock.wall())

    def admit(self, owned: OwnedShard) -> bool:
        """Return whether a claimed shard is read, after preparing how it is read.

        It isn't read if a record kills its readers and can't become a dead letter.
        """
        row = owned.row
        if row.poison is not None:
            if not self._delivery.has_dead_letters(owned.key.stream_arn):
                self._stop(owned, row.poison)
                return False
        if row.deaths.counted:
            owned.suspects = self._suspects(owned)
        return True

    def _stop(self, owned: OwnedShard, poison: Position) -> None:
        owned.stopped_by = PoisonRecordError(*owned.key, poison.text)
        logger.error(
            "%s; the shard stops before it: seek the shard past the record, or give "
            "run() dead_letters=",
            owned.stopped_by,
            extra=owned.log_fields,
        )

    def _suspects(self, owned: OwnedShard) -> Suspects:
        config = self._context.config
        if owned.row.is_isolated:
            logger.warning(
                "%s %s: %d owners died at its position; it is read in isolation, one "
                "record at a time",
                owned.source.stream,
                owned.source.shard_id,
                owned.row.deaths.counted,
                extra=owned.log_fields,
            )
        return Suspects(
            owned.row,
            config.max_uncommitted_records,
            partial(self._note_tried, owned),
            self._turn,
            partial(self._is_in_use, owned),
            acks_late=config.commit == "manual",
            commit_interval_seconds=config.commit_interval_seconds,
        )

    def _is_in_use(self, owned: OwnedShard) -> bool:
        """Return whether user code has records of a shard, or gets them again."""
        self._delivery.sync_progress()
        return self._delivery.has_records(owned, waiting=True)

    async def _note_tried(
        self, owned: OwnedShard, position: Position | None, number: int
    ) -> None:
        """Let the row name a record before user code gets it, or name none."""
        key = shard_writes.shard_row_key(self._context.app, owned.row)
        note = shard_writes.note_tried(key, owned.row, position, number)
        written = await self._context.write(note)
        if written.applied or not owned.can_store:
            return
        now = self._context.parse_row(rows.read_shard, written.row)
        # In the same epoch, the row has a later note.
        if now is None or now.epoch != owned.row.epoch:
            self._on_rejected(owned, now)
