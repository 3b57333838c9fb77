"""Define dead letters (a record and its handler's error), and what stores them."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, Self

import msgspec

from kinesumer.errors import (
    ConfigurationError,
    CorruptDeadLetterError,
    DeadLetterTooLargeError,
    DecodeError,
)
from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.model.records import Record
from kinesumer.model.streams import stream_name
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable, safe_str
from kinesumer.wire.put_records import KEY_CHARACTERS

# Limits in characters. A longer text loses its middle, so that a letter is hardly
# larger than its record: SQS accepts letters of up to 1 MiB, and so does Kinesis by
# default.
LONGEST_ERROR = 2_000
LONGEST_TRACEBACK = 16_000


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """A record, its position, and the error of its handler.

    ``docs/dead-letters.md`` describes the JSON of a dead letter. In JSON, ``data`` is
    base64 and times are RFC 3339.
    """

    app: str
    stream_arn: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None = None
    """Index within a KPL aggregate; None if the record wasn't aggregated."""
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    """Decimal digits; known only for aggregated records."""
    arrived_at: datetime | None = None
    """The time at which Kinesis received the record."""
    data: bytes
    error: str
    """The error's type and text, in one line."""
    traceback: str = ""
    attempts: int
    """Number of calls of the handler with this record."""
    failed_at: datetime

    @classmethod
    def of(
        cls,
        record: Record,
        error: BaseException,
        *,
        app: str,
        attempts: int,
        failed_at: float,
    ) -> Self:
        """Return the letter of a record; ``failed_at`` is seconds since 1970."""
        lines = traceback.format_exception(error)
        return cls(
            app=app,
            stream_arn=record.stream_arn,
            shard_id=record.shard_id,
            sequence_number=record.sequence_number,
            sub_sequence_number=record.sub_sequence_number,
            partition_key=record.partition_key,
            explicit_hash_key=record.explicit_hash_key,
            arrived_at=record.arrived_at,
            data=record.data,
            error=_shortened(_in_a_line(error), LONGEST_ERROR),
            traceback=_shortened("".join(lines), LONGEST_TRACEBACK),
            attempts=attempts,
            failed_at=datetime.fromtimestamp(failed_at, UTC),
        )

    @property
    def id(self) -> str:
        """16 hex digits, derived from app and position.

        A record that fails again has the same id.
        """
        position = (
            self.app,
            self.stream_arn,
            self.shard_id,
            self.sequence_number,
            str(self.sub_sequence_number),
        )
        return hashlib.sha256("\0".join(position).encode()).hexdigest()[:16]

    @property
    def stream(self) -> str:
        """The stream's name."""
        return stream_name(self.stream_arn)


class LetterWithoutData(DeadLetter, frozen=True, kw_only=True, tag=2):
    """A dead letter whose record's data was too large for its target.

    Its ``data`` is empty. Until the stream's retention ends, the record is where the
    position says. Versions that do not know such letters cannot read them.
    """

    data_bytes: int
    """The size of the record's data."""


def smaller_letters(letter: DeadLetter) -> Iterator[DeadLetter]:
    """Yield a letter, and then what to store of it if its target accepts no more."""
    yield letter
    fields = msgspec.structs.asdict(letter) | {"data": b""}
    # Kinesis has no limit for the keys within aggregates.
    if len(letter.partition_key or "") > KEY_CHARACTERS:
        fields["partition_key"] = None
    without = LetterWithoutData(**fields, data_bytes=len(letter.data))
    yield without
    # The smallest letter is for queues that accept 1 KiB.
    error = _shortened(letter.error, MAX_ERROR_LETTERS)
    yield msgspec.structs.replace(without, error=error, traceback="")


def encode_letter(letter: DeadLetter) -> bytes:
    """Return a letter as one line of JSON in ASCII, since SQS rejects some characters.

    Raises ConfigurationError for times without a zone.
    """
    if (time := _without_zone(letter)) is not None:
        raise ConfigurationError(
            f"a dead letter's time {time} has no time zone; use datetime.now(UTC)"
        )
    # An error's text may contain lone surrogates, which a reader couldn't decode.
    encodable = msgspec.structs.replace(
        letter, error=_as_utf8(letter.error), traceback=_as_utf8(letter.traceback)
    )
    fields = msgspec.to_builtins(encodable)
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode_letter(body: bytes | str) -> DeadLetter:
    """Parse a dead letter from its JSON. Raises CorruptDeadLetterError."""
    try:
        letter = _decode(body)
        letter.failed_at.astimezone(UTC)  # fails for some times in years 1 and 9999
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError) as error:
        raise CorruptDeadLetterError(
            f"not a dead letter of this version of kinesumer ({error}): read it by hand"
        ) from error
    if (time := _without_zone(letter)) is not None:
        raise CorruptDeadLetterError(
            f"not a dead letter of kinesumer, as its time {time} has no time zone: "
            "read it by hand"
        )
    return letter


_decode: Callable[[bytes | str], DeadLetter] = msgspec.json.Decoder(
    DeadLetter | LetterWithoutData
).decode


def _without_zone(letter: DeadLetter) -> datetime | None:
    # msgspec can check time zones itself, but then it would reject the replacements of
    # the datetime class that tests use.
    times = (letter.failed_at, letter.arrived_at)
    return next((time for time in times if time and time.tzinfo is None), None)


def _in_a_line(error: BaseException) -> str:
    # The message of a DecodeError begins with the record's position, which the letter
    # has in other fields.
    reason = error.reason if isinstance(error, DecodeError) else ""
    text = " ".join((reason or safe_str(error)).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = (longest - 5) // 2
    return f"{text[:half]}\n...\n{text[-half:]}"


def _as_utf8(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


DeadLetterFunction = Callable[[DeadLetter], Awaitable[object]]


class DeadLetters(Protocol):
    """Stores dead letters. A letter is stored when ``put`` has returned.

    ``put`` raises TransientError if a retry may help. Otherwise it raises
    DeadLetterTooLargeError or another error. A retry may store a letter twice.
    """

    async def put(self, letter: DeadLetter) -> None:
        """Store a dead letter; return when it is durable."""

    async def aclose(self) -> None:
        """Close the resources that the target opened. The default is to do nothing."""
        return


async def put_what_fits(
    letter: DeadLetter, put: Callable[[DeadLetter], Awaitable[None]]
) -> None:
    """Put a letter, or as much of it as the target accepts.

    ``put`` raises DeadLetterTooLargeError for a letter that the target does not accept.
    Raises this error if the target accepts no part of the letter.
    """
    refused: DeadLetterTooLargeError | None = None
    for part in smaller_letters(letter):
        try:
            await put(part)
        except DeadLetterTooLargeError as error:
            refused = refused or error
            continue
        if refused is not None:
            logger.warning(
                "%s. The letter was stored without the record's data. Until the "
                "retention of stream %s ends, the data is at %s, sequence number %s",
                refused,
                escape_unprintable(letter.stream),
                escape_unprintable(letter.shard_id),
                letter.sequence_number,
            )
        return
    assert refused is not None  # there is at least one part
    raise refused


class StoredEntry(NamedTuple):
    """An entry of a target, with its dead letter or the reason why it is unreadable."""

    receipt: object  # identifies the entry in its target
    letter: DeadLetter | None
    problem: str = ""


class ReadableDeadLetters(DeadLetters, Protocol):
    """A target whose entries can be read."""

    removes: bool  # whether entries can be removed

    def read(self) -> AsyncIterator[StoredEntry]:
        """Yield all entries that are stored now."""

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Remove entries. Skip entries that are already removed."""


def read_entry(receipt: object, body: bytes | str, place: str) -> StoredEntry:
    """Parse an entry's body. If that fails, the entry's problem names ``place``."""
    try:
        return StoredEntry(receipt, decode_letter(body))
    except CorruptDeadLetterError as error:
        return StoredEntry(receipt, None, f"{place}: {error}")
