"""Run a client with a handler in virtual time, with AWS replaced by memory."""

from __future__ import annotations

from typing import Any

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.dead_letters import DeadLetter
from kinesumer.model.positions import Position
from tests.support.world import Client, World

TERMS = (
    "batch",
    "concurrency",
    "dead_letter_limit",
    "dead_letters",
    "decode",
    "middleware",
    "on_failure",
    "retries",
    "traceparent",
)


class Runner(Client):
    """Runs ``client.run()`` in the background, without AWS."""

    def __init__(
        self,
        world: World,
        handler: Any,
        client_id: str = "c1",
        *streams: str,
        **options: Any,
    ) -> None:
        self.letters = Letters()
        self._asked = {name: options.pop(name) for name in TERMS if name in options}
        if isinstance(self._asked.get("dead_letters"), str):
            self._asked["dead_letters"] = self.letters.put
        self._handler = handler
        super().__init__(world, client_id, streams or ("orders",), **options)

    @property
    def owned(self) -> OwnedShard:
        """The only shard that the client owns."""
        [owned] = self.group.owned_shards()
        return owned

    async def close(self) -> None:
        """Leave the client's block while ``run()`` is active."""
        await self.run(self.client.__aexit__(None, None, None))

    async def leave(self) -> None:
        """Leave the group in good order, and then the client's block."""
        await self.run(self.client.leave())
        await self.task
        await self.close()

    async def _consume(self) -> None:
        await self.client.__aenter__()
        await self.client.run(
            self._streams, self._handler, start=self._start, **self._asked
        )


class Letters:
    """A target of dead letters that can be told to fail."""

    def __init__(self) -> None:
        self.stored: list[DeadLetter] = []
        self.errors: list[Exception] = []
        """The errors that the next calls of ``put`` raise, one each."""
        self.tries = 0
        self.is_closed = False

    @property
    def texts(self) -> list[str]:
        """The data of the stored letters, as text."""
        return [letter.data.decode() for letter in self.stored]

    async def put(self, letter: DeadLetter) -> None:
        """Store a letter, or raise the next error."""
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        self.stored.append(letter)

    async def aclose(self) -> None:
        """Record the call."""
        self.is_closed = True


def committed(world: World, shard_id: str = "shardId-000000000000") -> int:
    """Return how many records of a shard its checkpoint covers."""
    position = world.shard_rows()[shard_id].position
    if position is None:
        return 0
    log = world.kinesis.stream("orders").shards[shard_id].log
    places = [Position(record.sequence_number) for record in log]
    return places.index(position) + 1
