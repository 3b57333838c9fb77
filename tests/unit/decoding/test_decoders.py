"""Test what ``decode=`` and ``on_decode_error=`` may be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NewType, assert_type

import pytest

from kinesumer import Batch, Kinesumer, Record, Records
from kinesumer import blocking as without_asyncio
from kinesumer.decoding.decoders import read_decoder, read_policy
from kinesumer.errors import ConfigurationError
from kinesumer.runtime.clock import SystemClock

CLOCK = SystemClock()
Number = NewType("Number", int)


@dataclass
class Order:
    id: int


@dataclass
class Refund:
    of: int


class Plain:
    """A class that JSON cannot be decoded as. Its instances are decoders."""

    def __call__(self, record: Record) -> Any:
        return "called"


def plain(record: Record, prefix: str = "") -> str:
    return f"{prefix}{record.data.decode()}"


async def later(record: Record) -> str:
    return plain(record)


def sometimes_later(record: Record) -> Awaitable[str] | str:
    return later(record) if record.partition_key else plain(record)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (Order, Order(7)),
        (Order | None, Order(7)),
        (dict[str, int], {"id": 7}),
        (Any, {"id": 7}),
        (plain, '{"id": 7}'),
        (later, '{"id": 7}'),
        (sometimes_later, '{"id": 7}'),
        (partial(plain, prefix=">"), '>{"id": 7}'),
        (Plain(), "called"),
    ],
)
async def test_a_type_or_a_function_decodes(option: Any, value: object) -> None:
    decoder = read_decoder(option)
    assert decoder is not None
    for key in (None, "key"):
        assert await decoder.decode(Record("1", b'{"id": 7}', key)) == value


async def test_a_new_type_is_not_taken_for_a_function() -> None:
    decoder = read_decoder(Number)
    assert decoder is not None
    assert await decoder.decode(Record("1", b"7")) == 7


def generator(record: Record) -> Iterator[int]:
    yield 1


async def async_generator(record: Record) -> AsyncIterator[int]:
    yield 1


class Generator:
    def __call__(self, record: Record) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "option",
    [
        Plain,
        list[Plain],
        "Order",
        [Order],
        7,
        generator,
        partial(generator),
        async_generator,
        Generator(),
    ],
)
def test_anything_else_is_refused_at_the_call(option: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^decode="):
        read_policy(option, "raise", CLOCK)


@pytest.mark.parametrize("option", ["skip", lambda record, error: None])
def test_on_decode_error_needs_a_decoder(option: Any) -> None:
    with pytest.raises(ConfigurationError, match="no effect without decode="):
        read_policy(None, option, CLOCK)
    assert read_policy(None, "raise", CLOCK) is None


async def test_type_checkers_know_the_types_of_decoded_values() -> None:
    async def check(client: Kinesumer, thread: without_asyncio.Kinesumer) -> None:
        assert_type(client.consume("orders"), Records[bytes])
        assert_type(client.consume("orders", start="2h"), Records[bytes])
        async for record in client.consume("orders", decode=Order):
            assert_type(record, Record[Order])
            assert_type(record.value, Order)
        orders = client.consume("orders", decode=Order, on_decode_error="skip")
        async for batch in orders.batches():
            assert_type(batch, Batch[Order])
        assert_type(client.consume("orders", decode=plain), Records[str])
        assert_type(client.consume("orders", decode=later), Records[str])
        assert_type(client.consume("orders", decode=sometimes_later), Records[str])
        assert_type(
            client.consume("orders", decode=lambda record: len(record.data)),
            Records[int],
        )
        both: Records[Order | Refund] = client.consume("all", decode=Order | Refund)
        client.ack(await anext(both))
        for other in thread.consume("orders", decode=Order):
            assert_type(other.value, Order)

    async def check_run(client: Kinesumer) -> None:
        async def on_order(record: Record[Order]) -> None: ...
        def on_texts(batch: Batch[str]) -> None: ...
        async def on_data(record: Record) -> None: ...
        async def on_both(record: Record[Order | Refund]) -> None: ...

        await client.run("orders", on_order, decode=Order)
        await client.run("orders", on_texts, decode=later, concurrency=2)
        await client.run("orders", on_texts, decode=sometimes_later)
        await client.run("orders", on_data)
        await client.run("all", on_both, decode=Order | Refund)
        await client.run({"orders": on_order}, decode=Order)
        await client.run("orders", on_order)  # type: ignore[arg-type]
        await client.run("orders", on_data, decode=Order)  # type: ignore[misc]
        await client.run("orders", on_order, decode=later)  # type: ignore[arg-type]

    assert callable(check_run)
    assert_is_function: Callable[..., object] = check
    assert callable(assert_is_function)
