"""Open the targets of dead letters.

A target is an async callable, or one of these names: ``file:PATH``, ``sqs:QUEUE_URL``,
``kinesis:STREAM_NAME_OR_ARN``, ``s3://BUCKET/PREFIX``.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kinesumer.aws.endpoints import require_no_credentials
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    DeadLetterFunction,
    DeadLetters,
    ReadableDeadLetters,
)
from kinesumer.model.validation import NOT_UNICODE
from kinesumer.runtime.extras import is_posix

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.aws.session import ClientFactory

KINDS = ("file", "sqs", "kinesis", "s3")


def parse_target(text: str) -> tuple[str, str]:
    """Return the kind and the place that a target names. Raises ConfigurationError."""
    require_no_credentials("the dead-letter target", text)
    kind, colon, place = text.partition(":")
    if kind == "s3":
        place = place.removeprefix("//") if place.startswith("//") else ""
    bucket = place.partition("/")[0]
    if not colon or kind not in KINDS or not place or (kind == "s3" and not bucket):
        raise ConfigurationError(
            f"{text!r} isn't a dead-letter target: use file:PATH, "
            "sqs:QUEUE_URL, kinesis:STREAM or s3://BUCKET/PREFIX"
        )
    try:
        # A path may have bytes that aren't UTF-8, which Python decodes as surrogates.
        os.fsencode(place) if kind == "file" else place.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"the dead-letter target {text!r} {NOT_UNICODE}: correct the text"
        ) from None
    return kind, place


def check_target(target: str | DeadLetterFunction) -> None:
    """Check a target without opening it. Raises ConfigurationError."""
    if isinstance(target, str):
        kind, place = parse_target(target)
        folder = Path(place).parent
        if kind == "file" and not folder.is_dir():
            raise ConfigurationError(
                f"dead letters cannot be stored in {place}, because the directory "
                f"{folder} does not exist: create it, or give another path"
            )
    elif not callable(target):
        raise ConfigurationError(
            f"dead_letters={target!r} must be a target's name or an async function "
            "that takes a DeadLetter"
        )


async def open_dead_letters(
    target: str | DeadLetterFunction,
    *,
    region: str | None = None,
    session: object | None = None,
) -> DeadLetters:
    """Open a dead-letter target; ``aclose()`` closes it.

    ``target`` takes the same values as ``dead_letters`` of ``run()``. ``region`` and
    ``session`` take the same values as in ``Kinesumer``. Raises ConfigurationError.
    """
    from kinesumer.aws.session import ClientFactory

    clients = ClientFactory(session, region=region)
    try:
        letters = await open_target(target, clients)
    except BaseException:
        await clients.__aexit__(None, None, None)
        raise
    return OwnedLetters(letters, clients)


async def open_target(
    target: str | DeadLetterFunction, clients: ClientFactory
) -> DeadLetters:
    """Open a target with the caller's AWS clients. Raises ConfigurationError."""
    check_target(target)
    if isinstance(target, str):
        return await open_readable(target, clients)
    return CallableLetters(target)


async def open_readable(text: str, clients: ClientFactory) -> ReadableDeadLetters:
    """Open a target by its name. Raises ConfigurationError."""
    kind, place = parse_target(text)
    # Import only the module of this target, since each has its own dependencies.
    if kind == "sqs":
        from kinesumer.handlers.dead_letters.sqs import open_queue

        return await open_queue(clients, place)
    if kind == "s3":
        from kinesumer.handlers.dead_letters.s3 import open_bucket

        return await open_bucket(clients, place)
    if kind == "kinesis":
        from kinesumer.handlers.dead_letters.kinesis import open_stream

        return await open_stream(clients, place)
    if not is_posix():
        raise ConfigurationError(
            f"dead letters can't be stored in the file {place!r}: this system can't "
            "lock it as POSIX systems can; use a queue, a bucket or a stream"
        )
    from kinesumer.handlers.dead_letters.file import FileLetters

    return FileLetters(place)


class OwnedLetters(DeadLetters):
    """A target together with the AWS clients that it uses."""

    def __init__(self, letters: DeadLetters, clients: ClientFactory) -> None:
        self._letters, self._clients = letters, clients

    async def put(self, letter: DeadLetter) -> None:
        """Store a letter."""
        await self._letters.put(letter)

    async def aclose(self) -> None:
        """Close the target, and then its clients."""
        # A queue releases its messages when it closes, so it still needs its client.
        try:
            await self._letters.aclose()
        finally:
            await self._clients.__aexit__(None, None, None)


class CallableLetters(DeadLetters):
    """Passes letters to an async function, which returns when a letter is stored."""

    def __init__(self, take: DeadLetterFunction) -> None:
        self._take = take

    async def put(self, letter: DeadLetter) -> None:
        """Call the function, and pass on its errors.

        Raises ConfigurationError if the function isn't async.
        """
        stored = self._take(letter)
        if not inspect.isawaitable(stored):
            raise ConfigurationError(
                f"dead_letters={self._take!r} returned nothing to await: write it with "
                "`async def`"
            )
        await stored
