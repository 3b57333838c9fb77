"""List the dead letters of a target, and put their records back into Kinesis.

A letter is removed after Kinesis has accepted its record. If the process crashes in
between, the next redrive puts the record again.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import FatalError, KinesumerError, PutFailedError
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    LetterWithoutData,
    ReadableDeadLetters,
    StoredEntry,
)
from kinesumer.model.positions import number_order
from kinesumer.model.streams import StreamInfo
from kinesumer.ops.group.connect import NO_ROLES, RETRY_SECONDS, Roles
from kinesumer.ops.group.produce import reported_by_its_future
from kinesumer.producer.pending import REQUEST_RECORDS, PutFuture
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.wire.put_records import Entry, refusal


class Filter(NamedTuple):
    """Conditions that select dead letters; a condition that is None selects all."""

    app: str | None = None
    stream: str | None = None  # a name or an ARN
    error: str | None = None  # a part of the error's text; case is ignored
    since: datetime | None = None  # the earliest time of the failure

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

    letter: DeadLetter  # the latest copy
    copies: list[StoredEntry]

    def report(self) -> dict[str, Any]:
        """Return what a list shows of the letter."""
        return {**letter_fields(self.letter), "copies": len(self.copies)}


class Contents(NamedTuple):
    """The selected letters of a target."""

    letters: list[StoredLetter]  # in the order of their failures
    unreadable: list[str]

    def select(self, ids: Sequence[str]) -> list[StoredLetter]:
        """Return the letters with these ids. Raises KinesumerError."""
        by_id = {held.letter.id: held for held in self.letters}
        if missing := [one for one in ids if one not in by_id]:
            raise KinesumerError(
                f"no letter {', '.join(missing)} in the target: choose ids that "
                "`kinesumer dlq list` shows"
            )
        return [by_id[one] for one in dict.fromkeys(ids)]


class RedriveResult(NamedTuple):
    """The letters that were put back, and those that weren't."""

    put: list[DeadLetter]
    # Letters that remain in the target, each with the reason.
    failed: list[tuple[DeadLetter, str]]


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


def letter_fields(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter without its data and traceback."""
    fields: dict[str, Any] = {"id": letter.id, **msgspec.to_builtins(letter)}
    for name in ("version", "data", "traceback"):
        del fields[name]
    return {**fields, "data_bytes": fields.get("data_bytes", len(letter.data))}


def shard_order(letter: DeadLetter) -> tuple[str, str, int, str, int]:
    """Return a sort key that puts letters in the order of the records in the shards."""
    number = number_order(letter.sequence_number)
    part = letter.sub_sequence_number or 0
    return letter.stream_arn, letter.shard_id, *number, part


def to_entry(letter: DeadLetter, stream: StreamInfo) -> Entry:
    """Return the record to put. Its key is the letter's id where one is missing."""
    key = letter.partition_key
    if key is None and stream.routes_by_key:
        key = letter.id
    return Entry(letter.data, key, letter.explicit_hash_key)


def _refusal(letter: DeadLetter, stream: StreamInfo) -> str | None:
    """Return why a letter's record can't be put; None if it can."""
    if isinstance(letter, LetterWithoutData):
        return (
            f"it has no data, because its target does not accept {letter.data_bytes:,} "
            f"bytes; until its retention ends, stream {letter.stream_arn} has the "
            f"record in {letter.shard_id} at {letter.sequence_number}"
        )
    return refusal(to_entry(letter, stream), stream)


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
        self._clients, self._target, self._chance = clients, target, chance
        self._roles, self._to_stream = roles, to_stream
        self._outcome = RedriveResult([], [])

    async def run(self, letters: Sequence[StoredLetter]) -> RedriveResult:
        """Put the records of letters; a failing stream affects only its own letters."""
        groups: dict[str, list[StoredLetter]] = {}
        for held in sorted(letters, key=lambda held: shard_order(held.letter)):
            own = held.letter.stream_arn
            stream = own if self._to_stream is None else self._to_stream
            groups.setdefault(stream, []).append(held)
        for stream, group in groups.items():
            await self._into(stream, group)
        return self._outcome

    async def _into(self, stream: str, letters: list[StoredLetter]) -> None:
        try:
            source = await open_source(self._clients, self._roles.stream(stream))
            info = await source.describe()
        except KinesumerError as error:
            self._fail(letters, str(error))
            return
        fitting = []
        for held in letters:
            if (reason := _refusal(held.letter, info)) is None:
                fitting.append(held)
            else:
                self._fail([held], reason)
        # The letters of a request are removed together. After a crash their records may
        # be repeated.
        for start in range(0, len(fitting), REQUEST_RECORDS):
            await self._put(source, info, fitting[start : start + REQUEST_RECORDS])

    async def _put(
        self, source: KinesisSource, info: StreamInfo, letters: list[StoredLetter]
    ) -> None:
        producer = RecordProducer(
            source,
            info,
            ordered=info.routes_by_key,
            chance=self._chance,
            on_refused=reported_by_its_future,
            give_up_seconds=RETRY_SECONDS,
        )
        futures: dict[str, PutFuture] = {}
        reason = ""  # why letters without a future weren't put
        try:
            for held in letters:
                entry = to_entry(held.letter, info)
                futures[held.letter.id] = await producer.add(entry)
            await producer.flush()
        except PutFailedError as error:
            reason = str(error.__cause__)
        finally:
            await producer.abandon(
                KinesumerError("the redrive ended early; run it again")
            )
        letters = [held for held in letters if self._is_put(held, futures, reason)]
        self._outcome.put.extend(held.letter for held in letters)
        try:
            await self._target.remove([one for held in letters for one in held.copies])
        except KinesumerError as error:
            # If this run continued, more records could be put twice.
            ids = ", ".join(held.letter.id for held in letters)
            raise FatalError(
                f"{len(letters)} records were put back, but their letters couldn't be "
                "removed; remove these letters: to put them back again would repeat "
                f"their records: {ids}: {error}"
            ) from error

    def _is_put(
        self, held: StoredLetter, futures: dict[str, PutFuture], reason: str
    ) -> bool:
        """Return whether a letter's record was put. If not, note why."""
        future = futures.get(held.letter.id)
        failure = future.exception() if future is not None else None
        if failure is not None:
            reason = failure.records[0].reason
        elif future is not None:
            return True
        self._fail([held], reason)
        return False

    def _fail(self, letters: Sequence[StoredLetter], reason: str) -> None:
        self._outcome.failed.extend((held.letter, reason) for held in letters)
