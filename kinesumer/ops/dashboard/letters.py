"""List, show and put back the dead letters of one app and one target."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec

from kinesumer.errors import KinesumerError
from kinesumer.handlers.dead_letters.letter import LetterWithoutData
from kinesumer.model.streams import stream_name
from kinesumer.ops.dashboard.records import decode_data
from kinesumer.ops.group.redrive import Filter, Redrive, open_letters, read_letters
from kinesumer.runtime.text import counted, escape_unprintable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kinesumer.aws.session import ClientFactory
    from kinesumer.handlers.dead_letters.base import ReadableDeadLetters
    from kinesumer.handlers.dead_letters.letter import DeadLetter
    from kinesumer.ops.group.connect import Roles
    from kinesumer.ops.group.redrive import Contents, StoredLetter

# The page lists and puts back at most so many letters at a time. A person reads no
# more, and the command handles any number.
MAX_LETTERS = 200
LetterId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
LetterIds = Annotated[
    list[LetterId], msgspec.Meta(min_length=1, max_length=MAX_LETTERS)
]


class LettersRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for all letters, or for one of them with its data and traceback."""

    letter: LetterId | None = None


class ShownLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A letter as the page shows it."""

    id: str
    failed_at: float  # seconds since 1970
    stream: str
    shard_id: str
    position: str
    partition_key: str | None
    error: str
    attempts: int
    copies: int
    # None in a list, and for data that the target did not accept. The kind is "json",
    # "text" or "binary"; the text of binary data is in base64.
    kind: str | None = None
    text: str | None = None
    traceback: str | None = None


class LettersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The letters that failed last, the latest first."""

    target: str
    total: int
    letters: list[ShownLetter]
    unreadable: list[str]


class LetterBrowser:
    """Reads one target, for one request after another.

    A queue hides the messages that one reader has from all others.
    """

    def __init__(
        self, app: str, target: str, clients: ClientFactory, roles: Roles
    ) -> None:
        self.target: str = target
        self._app, self._clients, self._roles = app, clients, roles
        self._reading = asyncio.Lock()

    async def find(self, request: LettersRequest) -> LettersAnswer:
        """Return the letters of the app, or one of them. Raises KinesumerError."""
        async with self._open() as (_, contents):
            if request.letter is not None:
                shown = [
                    show_letter(held, with_data=True)
                    for held in contents.select([request.letter])
                ]
            else:
                last = contents.letters[-MAX_LETTERS:]
                shown = [show_letter(held) for held in reversed(last)]
            return LettersAnswer(
                target=self.target,
                total=len(contents.letters),
                letters=shown,
                unreadable=contents.unreadable,
            )

    async def preview(self, ids: Sequence[str]) -> list[str]:
        """Return what a redrive will do. Raises KinesumerError."""
        async with self._open() as (stored, contents):
            streams = Counter(held.letter.stream_arn for held in contents.select(ids))
            after = "removed from" if stored.removes else "kept by Kinesis in"
        return [
            *(
                f"puts {counted(count, 'record')} back into "
                f"{escape_unprintable(stream_name(arn))}, for every app that reads it"
                for arn, count in streams.items()
            ),
            f"then the letters are {after} {escape_unprintable(self.target)}",
        ]

    async def redrive(self, ids: Sequence[str]) -> str:
        """Put records back, and say how many. Raises KinesumerError if one stays."""
        async with self._open() as (stored, contents):
            chosen = contents.select(ids)
            chance = random.Random()
            work = Redrive(self._clients, stored, chance=chance, roles=self._roles)
            outcome = await work.run(chosen)
        done = f"{counted(len(outcome.put), 'record')} put back"
        if outcome.failed:
            letter, reason = outcome.failed[0]
            left = counted(len(outcome.failed), "letter")
            raise KinesumerError(
                f"{done}, {left} left: {letter.id}: {reason}; try again after that"
            )
        return done

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[ReadableDeadLetters, Contents]]:
        async with self._reading, open_letters(self.target, self._clients) as stored:
            yield stored, await read_letters(stored.read(), Filter(app=self._app))


def show_letter(held: StoredLetter, *, with_data: bool = False) -> ShownLetter:
    """Return a letter as the page shows it, without its data in a list."""
    letter = held.letter
    shown = ShownLetter(
        id=letter.id,
        failed_at=letter.failed_at.timestamp(),
        stream=letter.stream,
        shard_id=letter.shard_id,
        position=_position(letter),
        partition_key=letter.partition_key,
        error=letter.error,
        attempts=letter.attempts,
        copies=len(held.copies),
    )
    if not with_data:
        return shown
    kind, text = None, None
    if not isinstance(letter, LetterWithoutData):
        kind, text = decode_data(letter.data)
    return msgspec.structs.replace(
        shown, kind=kind, text=text, traceback=letter.traceback
    )


def _position(letter: DeadLetter) -> str:
    sub = letter.sub_sequence_number
    return letter.sequence_number if sub is None else f"{letter.sequence_number}:{sub}"
