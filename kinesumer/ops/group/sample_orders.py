"""Make sample records: orders as lines of JSON, for trials."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.ops.group.produce import PACE_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

# Customers are the partition keys. That many spread over the shards evenly.
CUSTOMERS = 1000
MAX_CENTS = 50_000


class Order(msgspec.Struct):
    """A sample order."""

    order_id: int
    customer: str
    total: float
    ordered_at: str


def parse_rate(text: str) -> float:
    """Return the records per second of ``100/s`` or ``100``. Raises ConfigurationError.

    The rate must be more than 0, and at most a million.
    """
    try:
        rate = float(text.removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1_000_000:
        raise ConfigurationError(
            f"--generate {text}: give the records per second, such as 100/s"
        )
    return rate


def sample_order(order_id: int, chance: random.Random, now: float) -> bytes:
    """Return an order of a random customer as JSON; ``now`` is seconds since 1970."""
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    order = Order(
        order_id=order_id,
        customer=f"customer-{chance.randrange(CUSTOMERS):03}",
        total=chance.randrange(100, MAX_CENTS) / 100,
        ordered_at=moment.replace("+00:00", "Z"),
    )
    return msgspec.json.encode(order)


class SampleOrders:
    """Yields sample orders in portions, until ``limit`` orders or ``stop()``.

    The consumer of the portions keeps to the rate. ``wall`` returns the time in seconds
    since 1970.
    """

    def __init__(
        self,
        rate: float,
        *,
        limit: int | None,
        chance: random.Random,
        wall: Callable[[], float],
    ) -> None:
        self.count: int = 0  # orders yielded so far
        # Orders that are put together are made together, with one time.
        self._portion = max(1, int(rate * PACE_SECONDS))
        self._limit, self._chance, self._wall = limit, chance, wall
        self._is_stopped = False

    def stop(self) -> None:
        """Yield no further orders."""
        self._is_stopped = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        left = self._portion if self._limit is None else self._limit - self.count
        if self._is_stopped or left <= 0:
            raise StopAsyncIteration
        await asyncio.sleep(0)
        first, now = self.count + 1, self._wall()
        self.count += min(left, self._portion)
        return [
            sample_order(number, self._chance, now)
            for number in range(first, self.count + 1)
        ]
