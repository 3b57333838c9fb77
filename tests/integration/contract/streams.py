"""The streams of the backends whose clock the contract suite can advance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.testing.memory import MemoryKinesis
from kinesumer.testing.trial.acceptance.contract.streams import (
    READ_PAUSE_SECONDS,
    AwsStreams,
)

if TYPE_CHECKING:
    from kinesumer.ports import StreamSource
    from kinesumer.testing import EmbeddedAws


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> float:
        """Return the seconds that have passed."""
        return self.seconds

    def wall(self) -> float:
        """Return seconds since 1970."""
        return self.seconds


class MemoryStreams:
    """The streams of MemoryKinesis."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kinesis = MemoryKinesis(self.clock)

    async def create(self, stream: str, shards: int = 1) -> None:
        self.kinesis.create_stream(stream, shards)

    async def delete(self, stream: str) -> None:
        self.kinesis.delete_stream(stream)

    async def source(self, stream: str) -> StreamSource:
        return self.kinesis.source(stream)

    async def put(
        self, stream: str, data: bytes, key: str = "key", hash_key: int = 0
    ) -> tuple[str, str]:
        return self.kinesis.put(stream, data, key, hash_key)

    async def split(self, stream: str, shard_id: str) -> None:
        self.kinesis.split(stream, shard_id)

    async def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        self.kinesis.merge(stream, shard_id, adjacent)

    async def pause(self, seconds: float = READ_PAUSE_SECONDS) -> None:
        self.clock.seconds += seconds

    def require_movable_clock(self) -> None:
        """Do nothing: the clock is manual."""

    async def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.kinesis.apply_retention()

    def now(self) -> float:
        return self.clock.seconds


class EmbeddedStreams(AwsStreams):
    """The streams of the embedded AWS. Its clock is advanced, so tests needn't wait."""

    def __init__(self, aws: EmbeddedAws, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._aws = aws
        # Earlier tests may have used up the CreateStream calls of this second.
        aws.advance(1)

    async def pause(self, seconds: float = READ_PAUSE_SECONDS) -> None:
        self._aws.advance(seconds)

    def require_movable_clock(self) -> None:
        """Do nothing: the clock can be advanced."""

    async def pass_time(self, seconds: float) -> None:
        self._aws.advance(seconds)

    def now(self) -> float:
        return self._aws._state.clock.now()
