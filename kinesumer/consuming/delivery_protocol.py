"""What the engine requires of a delivery: of records, to a thread, or to a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kinesumer.consuming.watchdog import WorkSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.checkpointer import CommitRequester
    from kinesumer.consuming.delivered_batch import UserTask
    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.telemetry.api import Telemetry


class DeliveryProtocol(WorkSource, Protocol):
    """Takes batches from the buffer, delivers them, and keeps track of what is done."""

    def connect(
        self,
        buffer: PrefetchBuffer,
        checkpointer: CommitRequester,
        telemetry: Telemetry,
    ) -> None:
        """Set where batches come from, and what commits early when much is done.

        It is called on the client's event loop.
        """
        ...

    async def open(self, clients: ClientFactory) -> None:
        """Open what user code's records may need, before anything is read."""
        ...

    def warn_unsupported(self, streams: Iterable[OpenStream]) -> None:
        """Warn of streams that can't be consumed as the user means to."""
        ...

    def close(self, fatal: BaseException | None = None) -> None:
        """Give user code nothing more; end with the error that says why, if any."""
        ...

    def sync_progress(self) -> None:
        """Update the owned shards by what user code has done."""
        ...

    def is_in_use_beside(self, task: UserTask | None) -> bool:
        """Return whether a task other than this one may have records."""
        ...


class Starter(Protocol):
    """Starts the client when its first record is asked for."""

    async def __call__(self) -> None:
        """Start the client, unless it has started. Raises what the start raises."""
