"""End a delivery after a number of records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.consuming.delivered_batch import DeliveredBatch


class RecordLimit:
    """The number of records that all loops over a delivery get together.

    None stands for any number. Raises ConfigurationError for a limit below 1.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigurationError(
                f"limit={limit!r} must be a number of records, at least 1"
            )
        self._limit = limit
        # Records that were handed out, but that decoding left out.
        self._skipped = 0

    def skip(self) -> None:
        """Don't count a record that was handed out, since user code doesn't get it."""
        self._skipped += 1

    def remaining(self, finished: int, batches: Iterable[DeliveredBatch]) -> float:
        """Return how many more records may be claimed.

        ``finished`` counts the records of finished batches.
        """
        if self._limit is None:
            return math.inf
        claimed = finished + sum(batch.claimed for batch in batches)
        return self._limit + self._skipped - claimed
