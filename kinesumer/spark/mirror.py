"""A query's positions in the state store, where it is a member of its group.

What the driver calls, all on its background loop::

    mirror = await open_mirror(options)  # registers; raises GroupHeldError, …
    offset = await mirror.stored()  # where the group is: startingPosition=checkpoint
    mirror.committed(offset)  # after each batch: its end, or the next one's start
    await mirror.stop()  # in the reader's stop(): last positions, Leave

``kinesumer.spark.ending.stop_on_sigterm()``, called once in the main thread, makes
Spark call the reader's ``stop()`` when it ends the driver's Python process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.spark.offsets import Offset
    from kinesumer.spark.options import ReadOptions


class Mirror:
    """Keeps the group's shard rows in step with what a query has read."""

    async def stored(self) -> Offset:
        """Return where the group is in every stream of the query.

        Raises ConfigurationError for a stream that the group has no rows of.
        """
        raise NotImplementedError

    def committed(self, offset: Offset) -> None:
        """Note how far the query has read; written soon, and now and then only.

        Returns at once. Raises GroupHeldError if plain clients (or another query) have
        taken the group over while this process was suspended; what fails otherwise is
        only logged.
        """
        raise NotImplementedError

    async def stop(self) -> None:
        """Write the last positions and leave the group; takes a few seconds at most."""
        raise NotImplementedError


async def open_mirror(options: ReadOptions) -> Mirror:
    """Register a query with ``app`` and ``table`` as its group's only member.

    An unclean predecessor costs its lease (8 s). Raises GroupHeldError if plain clients
    or another query are alive, StreamReplacedError, GoFleetAliveError, and what opening
    a state store raises.
    """
    raise NotImplementedError(options)
