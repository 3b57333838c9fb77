"""The interface of dead-letter targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from kinesumer.dead_letters.letter import DeadLetter

    DeadLetterFunction = Callable[[DeadLetter], Awaitable[object]]


class DeadLetters(Protocol):
    """Stores dead letters: when ``put`` has returned, the letter is stored.

    ``put`` raises TransientError when trying again may help, else
    DeadLetterTooLargeError or another error. Putting a letter twice may store it twice.
    """

    async def put(self, letter: DeadLetter) -> None:
        """Store a dead letter; return when it is durable."""

    async def aclose(self) -> None:
        """Close what it has open."""


class StoredEntry(NamedTuple):
    """An entry of a target: a dead letter, or why it can't be read."""

    receipt: object
    """The target's own name of the entry."""
    letter: DeadLetter | None
    problem: str = ""


class ReadableDeadLetters(DeadLetters, Protocol):
    """A target whose entries can be read."""

    removes: bool
    """Whether entries can be removed."""

    def read(self) -> AsyncIterator[StoredEntry]:
        """Yield all entries that are stored now."""

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Remove entries; entries that are gone already are skipped."""
