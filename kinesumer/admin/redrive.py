"""List the dead letters of a target, and put their records back into Kinesis.

Delivery is at least once: a letter is removed after Kinesis has accepted its record, so
a crash in between leaves both.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.aws.kinesis import open_source
from kinesumer.errors import FatalError, KinesumerError
from kinesumer.producer.batching import PendingRecord, RecordProducer
from kinesumer.wire.put_records import Entry, refusal

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterable, Sequence
    from datetime import datetime

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.dead_letters import DeadLetter
    from kinesumer.dead_letters.base import ReadableDeadLetters, StoredEntry

BATCH_LETTERS = 500
"""The number of letters removed together; a crash may repeat their records."""
GIVE_UP_SECONDS = 60.0


class Filter(NamedTuple):
    """Conditions that select dead letters; None selects all."""

    app: str | None = None
    stream: str | None = None
    """A name or an ARN."""
    error: str | None = None
    """A part of the error's text; case is ignored."""
    since: datetime | None = None
    """The earliest time of the failure."""

    def matches(self, letter: DeadLetter) -> bool:
        """Return whether the filter selects a letter."""
        return (
            self.app in (None, letter.app)
            and self.stream in (None, letter.stream, letter.stream_arn)
            and (self.error is None or self.error.lower() in letter.error.lower())
            and (self.since is None or letter.failed_at >= self.since)
        )


class StoredLetter(NamedTuple):
    """A dead letter, and all its copies in the target."""

    letter: DeadLetter
    """The copy that failed last."""
    copies: list[StoredEntry]


class Contents(NamedTuple):
    """The selected letters of a target."""

    letters: list[StoredLetter]
    """The letters in the order of their failures."""
    unreadable: list[str]


class RedriveResult(NamedTuple):
    """The letters that were put back, and those that weren't."""

    put: list[DeadLetter]
    failed: list[tuple[DeadLetter, str]]
    """Letters that remain in the target, each with the reason."""


async def read_letters(stored: AsyncIterable[StoredEntry], filter_: Filter) -> Contents:
    """Return the letters that a filter selects."""
    by_id: dict[str, StoredLetter] = {}
    unreadable = []
    async for copy in stored:
        if copy.letter is None:
            unreadable.append(copy.problem)
        elif filter_.matches(copy.letter):
            known = by_id.setdefault(copy.letter.id, StoredLetter(copy.letter, []))
            known.copies.append(copy)
            if copy.letter.failed_at > known.letter.failed_at:
                by_id[copy.letter.id] = known._replace(letter=copy.letter)
    letters = sorted(by_id.values(), key=lambda stored: stored.letter.failed_at)
    return Contents(letters, unreadable)


def shard_order(letter: DeadLetter) -> tuple[str, str, int, str, int]:
    """Return a sort key: the order of the letters' records in their shards."""
    number, sub = letter.sequence_number, letter.sub_sequence_number
    return letter.stream_arn, letter.shard_id, len(number), number, sub or 0


def to_entry(letter: DeadLetter) -> Entry:
    """Return the record to put; the letter's id replaces a missing partition key."""
    key = letter.id if letter.partition_key is None else letter.partition_key
    return Entry(letter.data, key, letter.explicit_hash_key)


class Redrive:
    """Puts records back, in the order of each partition key, and removes letters."""

    def __init__(
        self,
        clients: ClientFactory,
        target: ReadableDeadLetters,
        *,
        chance: random.Random,
        roles: Roles = NO_ROLES,
        to_stream: str | None = None,
    ) -> None:
        self._clients, self._target = clients, target
        self._chance = chance
        self._roles = roles
        self._to_stream = to_stream
        self._outcome = RedriveResult([], [])

    async def run(self, letters: Sequence[StoredLetter]) -> RedriveResult:
        """Put the records of letters; a failing stream affects only its own letters."""
        ordered = sorted(letters, key=lambda held: shard_order(held.letter))
        if self._to_stream is not None:
            await self._into(self._to_stream, ordered)
            return self._outcome
        for arn, group in groupby(ordered, key=lambda held: held.letter.stream_arn):
            await self._into(arn, list(group))
        return self._outcome

    async def _into(self, stream: str, letters: list[StoredLetter]) -> None:
        try:
            source = await open_source(self._clients, self._roles.stream(stream))
            max_bytes = (await source.describe()).max_record_bytes
        except KinesumerError as error:
            self._fail(letters, str(error))
            return
        fitting = [held for held in letters if self._can_be_put(held, max_bytes)]
        for start in range(0, len(fitting), BATCH_LETTERS):
            await self._put(source, fitting[start : start + BATCH_LETTERS])

    def _can_be_put(self, held: StoredLetter, max_bytes: int) -> bool:
        entry = to_entry(held.letter)
        key, hash_key = entry.partition_key, entry.explicit_hash_key
        reason = refusal(entry.data, key, hash_key, max_bytes)
        if reason is not None:
            self._fail([held], reason)
        return reason is None

    async def _put(self, source: KinesisSource, letters: list[StoredLetter]) -> None:
        putter = RecordProducer(
            source.put_records,
            ordered=True,
            chance=self._chance,
            give_up_seconds=GIVE_UP_SECONDS,
        )
        try:
            await putter.add(_unit(held.letter) for held in letters)
            await putter.finish()
        except KinesumerError as error:
            left = {unit.origin for unit in putter.unacknowledged()}
            self._fail([h for h in letters if h.letter.id in left], str(error))
            letters = [held for held in letters if held.letter.id not in left]
        finally:
            await putter.abandon()
        self._outcome.put.extend(held.letter for held in letters)
        try:
            await self._target.remove([one for held in letters for one in held.copies])
        except KinesumerError as error:
            # Going on could put the records of the remaining letters back twice.
            ids = ", ".join(held.letter.id for held in letters)
            raise FatalError(
                f"{len(letters)} records were put back, but their letters couldn't be "
                f"removed; remove these letters, since putting them back again repeats "
                f"their records: {ids}: {error}"
            ) from error

    def _fail(self, letters: Sequence[StoredLetter], reason: str) -> None:
        self._outcome.failed.extend((held.letter, reason) for held in letters)


def _unit(letter: DeadLetter) -> PendingRecord:
    entry = to_entry(letter)
    return PendingRecord(
        entry, entry.size, order_key=entry.partition_key, origin=letter.id
    )
