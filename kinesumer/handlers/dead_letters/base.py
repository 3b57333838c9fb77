"""Define the interface of dead-letter targets, and their common parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import (
    AwsFailure,
    Kind,
    describe,
    failure_of,
    fatal_error,
    foreign,
    transient_error,
    translated_errors,
)
from kinesumer.errors import (
    CorruptDeadLetterError,
    DeadLettersUnavailableError,
    DeadLetterTooLargeError,
    FatalError,
    KinesumerError,
)
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    decode_letter,
    smaller_letters,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable

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


class RejectedCallError(FatalError):
    """AWS rejected a call of SQS or S3. ``code`` is AWS's error code."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@contextmanager
def translated(opened: OpenClient, action: str, resource: str) -> Iterator[None]:
    """Translate errors of SQS and S3 into errors of kinesumer.

    A call that failed with DeadLettersUnavailableError may succeed if it is repeated.
    """
    try:
        with translated_errors(action, DeadLettersUnavailableError):
            yield
    except foreign() as error:
        raise _error(failure_of(error), opened, action, resource) from error


def _error(
    fault: AwsFailure, opened: OpenClient, action: str, resource: str
) -> KinesumerError:
    call = f"{action} on {resource}"
    message = f"{call}: {describe(fault)}"
    if fault.kind is Kind.THROTTLED:
        return DeadLettersUnavailableError(message)
    unavailable = DeadLettersUnavailableError
    passing = transient_error(fault, unavailable, call, opened.keys)
    if passing is not None:
        return passing
    if fault.kind is Kind.OTHER and fault.code != "ParamValidationError":
        return RejectedCallError(fault.code, message)
    return fatal_error(fault, action, resource)
