"""Test the sample orders of ``kinesumer produce --generate``."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.ops.group.produce import SampleOrders, parse_rate, sample_order


def test_an_order_has_an_id_a_customer_a_total_and_a_time() -> None:
    order = json.loads(sample_order(7, random.Random(1), 1_767_225_600.5))
    assert order.keys() == {"order_id", "customer", "total", "ordered_at"}
    assert order["order_id"] == 7
    assert order["customer"].startswith("customer-")
    assert order["total"] >= 1
    assert order["ordered_at"] == "2026-01-01T00:00:00.500Z"


def test_customers_are_spread_evenly() -> None:
    chance = random.Random(1)
    orders = [json.loads(sample_order(n, chance, 0.0)) for n in range(10_000)]
    counts = Counter(order["customer"] for order in orders)
    assert len(counts) == 1000
    assert max(counts.values()) < 40


@pytest.mark.parametrize(("text", "rate"), [("100/s", 100), ("0.5", 0.5), ("1e3", 1e3)])
def test_a_rate_is_records_per_second(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "/s", "x", "0/s", "-1", "nan", "inf", "100/m"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="such as 100/s"):
        parse_rate(text)


def orders(rate: float, limit: int | None) -> SampleOrders:
    return SampleOrders(rate, limit=limit, chance=random.Random(1), wall=lambda: 0.0)


async def test_orders_end_at_the_limit_and_are_numbered() -> None:
    portions = [portion async for portion in orders(100, 12)]
    assert [len(portion) for portion in portions] == [5, 5, 2]
    numbers = [json.loads(line)["order_id"] for part in portions for line in part]
    assert numbers == list(range(1, 13))


async def test_orders_go_on_until_they_are_stopped() -> None:
    source, count = orders(1, None), 0
    async for portion in source:
        count += len(portion)
        if count == 100:
            source.stop()
    assert count == source.count == 100
