"""Queue the records that may have killed a shard's former owners.

In isolation, user code gets one record at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.consuming.suspects import Suspects

# In isolation, a read returns at most this many records, since they wait in memory.
RECORDS_PER_READ = 100
# With manual commits, user code that asks for more records has this time to acknowledge
# a record before it gets the next one. It may acknowledge several records together.
ACK_SECONDS = 0.25


async def put_suspects(
    owned: OwnedShard,
    suspects: Suspects,
    batch: FetchedBatch,
    put: Callable[[FetchedBatch], object],
) -> FetchedBatch | None:
    """Queue a batch's suspects if they are isolated; return the rest, if any.

    Otherwise, note that user code is about to get suspects, and return the batch.
    """
    count = suspects.count_suspects(batch.records)
    if not suspects.is_isolated:
        if count:
            await suspects.note_first(batch.records[0].position)
        if count < len(batch):
            suspects.end(owned.queued_records + count)
            await suspects.turn.end(suspects)
        if not count or not suspects.turn.isolated_shards:
            return batch
        await _put_in_turn(owned, suspects, batch, put)
        return None
    for index, record in enumerate(batch.records[:count]):
        one = batch.with_records([record])
        one.end = batch.end if index + 1 == len(batch) else None
        await _put_in_turn(owned, suspects, one, put)
    if count == len(batch):
        return batch if not count else None
    suspects.end(owned.queued_records)
    await suspects.turn.end(suspects)
    return batch.with_records(batch.records[count:])


async def _put_in_turn(
    owned: OwnedShard,
    suspects: Suspects,
    batch: FetchedBatch,
    put: Callable[[FetchedBatch], object],
) -> None:
    """Queue records, and wait until their positions are stored."""
    await owned.wait_for_capacity(len(batch))
    async with suspects.turn:
        await suspects.turn.begin(suspects)
        position = batch.records[0].position
        # The poison isn't given to user code.
        if suspects.is_isolated and position != suspects.poison:
            suspects.due = position
        suspects.is_in_turn = True
        owned.queued(len(batch))
        put(batch)
        while not await owned.all_stored(ACK_SECONDS):
            is_in_use = suspects.is_in_use()
            is_passed = owned.handed_out >= owned.queued_records and not is_in_use
            if is_passed and suspects.acks_late:
                suspects.turn.unacked = suspects if suspects.is_isolated else None
                break
        suspects.is_in_turn = False
