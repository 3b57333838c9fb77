"""What ``kinesumer dlq`` does: look into a target, and put records back.

At least once: a letter is taken out when Kinesis has its record, so that a crash in
between leaves both.
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

AT_ONCE = 500
"""Letters that are put before they are taken out: what a crash may repeat."""
GIVE_UP_SECONDS = 60.0


class Filter(NamedTuple):
    """Which letters are meant; what is None means all."""

    app: str | None = None
    stream: str | None = None
    """A name or an ARN."""
    error: str | None = None
    """A part of the error's text, in upper or lower case."""
    since: datetime | None = None
    """Failed then or later."""

    def fits(self, letter: DeadLetter) -> bool:
        """Tell whether a letter is meant."""
        return (
            self.app in (None, letter.app)
            and self.stream in (None, letter.stream, letter.stream_arn)
            and (self.error is None or self.error.lower() in letter.error.lower())
            and (self.since is None or letter.failed_at >= self.since)
        )


class StoredLetter(NamedTuple):
    """A letter, and everything in the target that is one of this record."""

    letter: DeadLetter
    """The one that failed last."""
    copies: list[StoredEntry]


class Contents(NamedTuple):
    """What is in a target."""

    letters: list[StoredLetter]
    """In the order in which they failed."""
    unreadable: list[str]


class RedriveResult(NamedTuple):
    """What became of the letters."""

    put: list[DeadLetter]
    failed: list[tuple[DeadLetter, str]]
    """With the reason; they stay where they are."""


async def read_letters(stored: AsyncIterable[StoredEntry], wanted: Filter) -> Contents:
    """Read everything, and return what is meant."""
    held: dict[str, StoredLetter] = {}
    unreadable = []
    async for one in stored:
        if one.letter is None:
            unreadable.append(one.problem)
        elif wanted.fits(one.letter):
            known = held.setdefault(one.letter.id, StoredLetter(one.letter, []))
            known.copies.append(one)
            if one.letter.failed_at > known.letter.failed_at:
                held[one.letter.id] = known._replace(letter=one.letter)
    letters = sorted(held.values(), key=lambda found: found.letter.failed_at)
    return Contents(letters, unreadable)


def shard_order(letter: DeadLetter) -> tuple[str, str, int, str, int]:
    """Return a key that sorts letters as their records stood in their shards."""
    number, sub = letter.sequence_number, letter.sub_sequence_number
    return letter.stream_arn, letter.shard_id, len(number), number, sub or 0


def to_entry(letter: DeadLetter) -> Entry:
    """Return the record to put; one without a partition key gets the letter's id."""
    key = letter.id if letter.partition_key is None else letter.partition_key
    return Entry(letter.data, key, letter.explicit_hash_key)


class Redrive:
    """Puts records back, in the order of each partition key, and takes letters out."""

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
        """Put every letter's record; a stream that fails fails its own letters only."""
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
            longest = (await source.describe()).max_record_bytes
        except KinesumerError as error:
            self._fail(letters, str(error))
            return
        fitting = [held for held in letters if self._can_be_put(held, longest)]
        for start in range(0, len(fitting), AT_ONCE):
            await self._put(source, fitting[start : start + AT_ONCE])

    def _can_be_put(self, held: StoredLetter, longest: int) -> bool:
        entry = to_entry(held.letter)
        key, hash_key = entry.partition_key, entry.explicit_hash_key
        reason = refusal(entry.data, key, hash_key, longest)
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
            # It ends here: what can't be taken out would be put back twice.
            raise FatalError(
                f"{len(letters)} records are back in their stream, but letters of "
                f"theirs may still be there, and to put these back would repeat their "
                f"records: {', '.join(held.letter.id for held in letters)}: {error}"
            ) from error

    def _fail(self, letters: Sequence[StoredLetter], reason: str) -> None:
        self._outcome.failed.extend((held.letter, reason) for held in letters)


def _unit(letter: DeadLetter) -> PendingRecord:
    entry = to_entry(letter)
    return PendingRecord(
        entry, entry.size, order_key=entry.partition_key, origin=letter.id
    )
