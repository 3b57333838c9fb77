"""Deliver records to a thread, as a client without asyncio does.

Only tests move the clock, so no turn ends by itself, however slow a test is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinesumer.blocking.delivery import Records, ThreadDelivery
from kinesumer.blocking.portal import LoopThread
from kinesumer.consuming.delivery_protocol import EngineParts
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.decoding.decoders import OnDecodeError, read_policy
from tests.support.clock import StillClock
from tests.support.delivery import CountingTelemetry
from tests.support.world import batch_of


class ThreadDesk:
    """Delivers batches to a thread as a client does. The batches come from the test."""

    def __init__(
        self,
        decode: Any = None,
        on_decode_error: OnDecodeError = "raise",
        *,
        acks_by_asking: bool = True,
    ) -> None:
        self.acked: list[str] = []
        self.loop_thread = LoopThread(self, lambda: None)
        self.clock = StillClock(1.0)
        self.delivery = ThreadDelivery(
            self.loop_thread,
            self.clock,
            acks_by_asking=acks_by_asking,
            ack=lambda record: self.acked.append(record.sequence_number),
            policy=read_policy(decode, on_decode_error, self.clock),
        )
        self.buffer = PrefetchBuffer(1 << 20)
        self.records: Records[Any] = Records(self.delivery, self.start)
        self.telemetry = CountingTelemetry()
        self.crossings = 0

    async def __aenter__(self) -> None:
        call = self.loop_thread.call

        def counted(*arguments: Any) -> Any:
            self.crossings += 1
            return call(*arguments)

        self.loop_thread.call = counted  # type: ignore[method-assign,assignment]

    async def __aexit__(self, *_: object) -> None:
        self.delivery.close()

    async def start(self) -> None:
        self.delivery.connect(EngineParts(self.buffer, lambda: None, self.telemetry))

    def on_loop(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self.loop_thread.call(call)

    def put(self, owned: OwnedShard, *numbers: int) -> None:
        batch = batch_of(owned, *numbers)
        self.on_loop(lambda: self.buffer.put(batch))

    def done(self, owned: OwnedShard) -> int:
        self.on_loop(self.delivery.sync_progress)
        return owned.progress.done
