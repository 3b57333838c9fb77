"""The targets of dead letters by name: what can be asked of each, and how to open it.

``file:PATH``, ``sqs:QUEUE_URL``, ``kinesis:STREAM_NAME_OR_ARN``, ``s3://BUCKET/PREFIX``,
or an async callable.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.endpoints import require_no_credentials
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from kinesumer.aws.session import ClientFactory
    from kinesumer.dead_letters.base import (
        DeadLetterFunction,
        DeadLetters,
        ReadableDeadLetters,
    )
    from kinesumer.dead_letters.letter import DeadLetter


KINDS = ("file", "sqs", "kinesis", "s3")


class Target(NamedTuple):
    """A target's name, taken apart."""

    kind: str
    place: str


def parse_target(text: str) -> Target:
    """Take a target's name apart. Raises ConfigurationError for what names none."""
    require_no_credentials("the target of dead letters", text)
    kind, colon, place = text.partition(":")
    if kind == "s3":
        place = place.removeprefix("//") if place.startswith("//") else ""
    bucket = place.partition("/")[0]
    if not colon or kind not in KINDS or not place or (kind == "s3" and not bucket):
        raise ConfigurationError(
            f"{text!r} isn't a dead-letter target: use file:PATH, "
            "sqs:QUEUE_URL, kinesis:STREAM or s3://BUCKET/PREFIX"
        )
    return Target(kind, place)


def check_target(target: str | DeadLetterFunction) -> None:
    """Raise ConfigurationError for what can't be a target; nothing is opened."""
    if isinstance(target, str):
        parse_target(target)
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
    """Open a target of dead letters; ``aclose()`` closes it.

    ``target`` is what ``run()`` takes as ``dead_letters``. ``region`` and ``session``
    are those of ``Kinesumer``: AWS is called with them. Raises ConfigurationError for
    what isn't a target.
    """
    from kinesumer.aws.session import ClientFactory

    check_target(target)
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
    """Open a target, with clients that outlive it. Raises ConfigurationError."""
    check_target(target)
    if isinstance(target, str):
        return await open_readable(target, clients)
    return CallableLetters(target)


async def open_readable(text: str, clients: ClientFactory) -> ReadableDeadLetters:
    """Open a target by its name. Raises ConfigurationError for what names none."""
    kind, place = parse_target(text)
    # Each brings imports that the others don't need.
    if kind == "sqs":
        from kinesumer.dead_letters.sqs import open_queue

        return await open_queue(clients, place)
    if kind == "s3":
        from kinesumer.dead_letters.s3 import open_bucket

        return await open_bucket(clients, place)
    if kind == "kinesis":
        from kinesumer.dead_letters.kinesis import open_stream

        return await open_stream(clients, place)
    from kinesumer.dead_letters.file import FileLetters

    return FileLetters(place)


class OwnedLetters:
    """A target together with the AWS clients that it is called with."""

    def __init__(self, letters: DeadLetters, clients: ClientFactory) -> None:
        self._letters, self._clients = letters, clients

    async def put(self, letter: DeadLetter) -> None:
        """Store a letter."""
        await self._letters.put(letter)

    async def aclose(self) -> None:
        """Close the target, and then its clients."""
        try:
            await self._letters.aclose()
        finally:
            await self._clients.__aexit__(None, None, None)


class CallableLetters:
    """Gives letters to an async function: what it returned for counts as stored."""

    def __init__(self, take: DeadLetterFunction) -> None:
        self._take = take

    async def put(self, letter: DeadLetter) -> None:
        """Call the function. Raises what it raises, and ConfigurationError."""
        stored = self._take(letter)
        if not inspect.isawaitable(stored):
            raise ConfigurationError(
                f"dead_letters={self._take!r} returned nothing to await: write it with "
                "`async def`"
            )
        await stored

    async def aclose(self) -> None:
        """Nothing is held open."""
