"""Run a client with a handler in virtual time, with AWS replaced by memory."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.handlers.runner import HandlerRunner
from kinesumer.handlers.stream_handlers import read_handlers
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.dead_letters import DeadLetter
    from kinesumer.model.streams import Stream
    from tests.support.world import World

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


class Runner:
    """Runs ``client.run()`` in the background, without AWS."""

    def __init__(
        self,
        world: World,
        handler: Any,
        client_id: str = "c1",
        *streams: str,
        store: Any = None,
        **options: Any,
    ) -> None:
        asked: Any = {name: options.pop(name) for name in TERMS if name in options}
        self.world = world
        self.machine = world.loop.machine(client_id)
        self.context = world.context(client_id, store=store, **options)
        self.letters = Letters()
        handlers = read_handlers("orders", handler, asked)
        self.handling = HandlerRunner(
            handlers,
            app=self.context.app,
            clock=self.machine,
            random=Random(2),
            drain=self.context.config.drain_timeout_seconds,
        )
        if "dead_letters" in asked:
            self.handling.callers.letters[asked["dead_letters"]] = self.letters
        self.group = GroupConsumer(
            self.context, self._open, HeartbeatTask(self.context), self.handling
        )
        self._streams = list(streams or ("orders",))
        self.task: asyncio.Task[None] = self.run(self.handling.run(self._begin))

    @property
    def held(self) -> list[str]:
        """The ids of the shards that the client owns."""
        return sorted(h.key.shard_id for h in self.group.owned_shards())

    @property
    def owned(self) -> OwnedShard:
        """The only shard that the client owns."""
        [owned] = self.group.owned_shards()
        return owned

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine of the client on its machine."""
        return self.world.loop.spawn(self.machine, work)

    async def stop(self) -> None:
        """Leave the client's block while ``run()`` is active."""
        await self.run(self.group.stop(wait_for_user=True))

    async def leave(self) -> None:
        """Leave the group in good order, and then the client's block."""
        await self.run(self.group.leave())
        await self.task
        await self.run(self.group.stop(wait_for_user=False))

    async def _open(self, stream: Stream) -> Any:
        return self.world.kinesis.source(stream.name)

    async def _begin(self) -> None:
        await self.group.start(self._streams, Start.TRIM_HORIZON)


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
