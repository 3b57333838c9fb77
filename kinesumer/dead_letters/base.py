"""What every target of dead letters does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from kinesumer.dead_letters.letter import DeadLetter

    DeadLetterFunction = Callable[[DeadLetter], Awaitable[object]]


class DeadLetters(Protocol):
    """Keeps letters: one that ``put`` returned for is stored.

    ``put`` raises TransientError when trying again may help, else
    DeadLetterTooLargeError or another error. Putting a letter twice may store it twice.
    """

    async def put(self, letter: DeadLetter) -> None:
        """Store a letter; return when it can't be lost any more."""

    async def aclose(self) -> None:
        """Give up what it holds open."""


class StoredEntry(NamedTuple):
    """What stands in a target: a letter, or why it can't be read."""

    receipt: object
    """The target's own name of it."""
    letter: DeadLetter | None
    problem: str = ""


class ReadableDeadLetters(DeadLetters, Protocol):
    """A target that can be looked into."""

    removes: bool
    """Whether letters can be taken out."""

    def read(self) -> AsyncIterator[StoredEntry]:
        """Go through everything that is stored now."""

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Take letters out; those that are gone already are no error."""
