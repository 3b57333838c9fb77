"""Test that every public parameter refuses a wrong value with the library's error."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from kinesumer import (
    Config,
    ConfigurationError,
    Handler,
    Kinesumer,
    Producer,
    Record,
    RetryPolicy,
    Stream,
    blocking,
)

ROLE = "arn:aws:iam::210987654321:role/reader"
HALF = "\ud800"  # half of a character, which no text that is sent may contain


def handle(record: Record) -> None:
    """Handle a record."""


def handle_with_session(record: Record, session: object) -> None:
    """Take a second argument, as a handler of a web framework does."""


def generate(shard: object) -> Iterator[None]:
    """Do nothing when it is called."""
    yield


# Values that are wrong for each parameter. A parameter without one is in ANY_VALUE.
WRONG: dict[Any, dict[str, list[Any]]] = {
    Kinesumer: {
        "app": [5, "", "a#b", "\n", HALF, None],
        "table": [5, "", HALF],
        "region": [5, HALF],
        "client_id": [5, "", "a#b", HALF, "spark-query"],
        "kcl_table": [5, "", "a#b", HALF],
        "config": [{"commit": "manual"}, None],
        "stop_signals": ["yes", 1, None],
    },
    Stream: {
        "name": [5, HALF, "", None],
        "region": [5, "", HALF],
        "role_arn": [5, ROLE + HALF],
        "external_id": ["x", 5],  # without a role
        "session_name": ["x", 5],
        "start": ["yesterday", 5],
        "min_read_interval_seconds": ["x", -1, None, True],
        "fan_out_fallback": ["yes", 1],
        "table": [5, "", "a#b", HALF],
    },
    RetryPolicy: {
        "max_attempts": [0, "3", 1.5, True],
        "initial_delay_seconds": [0, "x", -1],
        "max_delay_seconds": [0, "x", -1],
        "non_retryable": [ValueError, ["x"], 5, (KeyboardInterrupt,)],
    },
    Producer: {
        "stream": [5, HALF, None],
        "aggregate": ["yes", 1],
        "ordered": ["yes", 1],
        "region": [5, HALF],
        "max_buffer_bytes": [0, "x"],
        "linger_seconds": [-1, "x"],
        "give_up_seconds": [-1, "x"],
        "traceparent": [5, "", "a..b"],
    },
    Kinesumer.consume: {
        "streams": [
            *(5, None, "", b"orders", HALF, "orders,payments", {"orders": handle}),
            *([], (), [5], [None], [""], [b"orders"]),
        ],
        "start": [5, "yesterday"],
        "until": ["1h", 5, datetime(2026, 1, 1)],
        "decode": [5],
        "on_decode_error": ["ignore", HALF, 5, None, True],
        "limit": [0, -1, "3", 2.0, True],
        "on_assigned": [5, generate],
        "on_revoked": [5, generate],
    },
    Kinesumer.run: {
        "streams": [5, [], HALF, "orders,payments", {"orders": 5}, {}],
        "handler": [5, handle_with_session, lambda: None],
        "start": [5, "yesterday"],
        "until": ["1h", 5],
        "batch": ["yes", 1, 2.0],
        "concurrency": [0, "3", 1.5, 2.0, True],
        "on_failure": ["ignore", 5],
        "dead_letters": ["here", f"s3://{HALF}", f"file:{HALF}", 5],
        "dead_letter_limit": [0, -1, 1.5, "3", True],
        "retries": [3, {"max_attempts": 3}],
        "middleware": [5, print, [print], "hooks"],
        "traceparent": [5, "", "a..b"],
        "decode": [5],
        "stop_signals": ["yes", 1],
        "on_assigned": [5, generate],
        "on_revoked": [5, generate],
    },
}
WRONG[blocking.Kinesumer] = WRONG[Kinesumer]
WRONG[blocking.Producer] = WRONG[Producer]
# What these accept is checked when they are used: an SDK's session, and a consumer,
# which must belong to the stream.
ANY_VALUE = {"session", "fan_out"}
# What an error says; the parameter's name if nothing is given here.
SAID = {
    "name": "stream",
    "streams": "stream",
    "batch": "batch=.* must be True, False or",
    "concurrency": "concurrency=.* must be a whole number from 1 to",
    "dead_letters": "dead.letter",
    "dead_letter_limit": "dead_letter_limit=.* must be a whole number of at least 1",
    "on_decode_error": "must be 'raise', 'skip' or a",
    "on_failure": "must be one of dead-letter, stop-shard",
    "retries": "retries=.* must be a RetryPolicy",
    "traceparent": "traceparent=.* must be a path",
    "until": 'must be "now" or a time',
}
CLASSES: dict[Any, dict[str, Any]] = {
    Kinesumer: {"app": "a"},
    blocking.Kinesumer: {"app": "a"},
    Stream: {"name": "orders"},
    RetryPolicy: {},
    Producer: {"stream": "orders"},
    blocking.Producer: {"stream": "orders"},
}
METHODS: dict[Any, dict[str, Any]] = {
    Kinesumer.consume: {"streams": "orders"},
    Kinesumer.run: {"streams": "orders", "handler": handle},
}


def cases(of: dict[Any, dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(
            call,
            {**needed, name: value},
            SAID.get(name, name),
            id=f"{call.__qualname__}-{name}-{i}",
        )
        for call, needed in of.items()
        for name, values in WRONG[call].items()
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize("call", [*CLASSES, *METHODS], ids=lambda c: c.__qualname__)
def test_each_public_parameter_has_a_wrong_value(call: Callable[..., object]) -> None:
    given = inspect.signature(call).parameters
    names = {name for name in given if name != "self" and not name.startswith("_")}
    assert names == WRONG[call].keys() | (ANY_VALUE & names)


@pytest.mark.parametrize(("call", "arguments", "said"), cases(CLASSES))
def test_a_wrong_argument_is_refused(
    call: Callable[..., object], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        call(**arguments)


@pytest.mark.parametrize(("call", "arguments", "said"), cases(METHODS))
async def test_a_wrong_argument_is_refused_at_the_call(
    call: Callable[..., Any], arguments: dict[str, Any], said: str
) -> None:
    async with Kinesumer("a") as client:
        with pytest.raises(ConfigurationError, match=said):
            result = call(client, **arguments)
            if inspect.isawaitable(result):
                await result


@pytest.mark.parametrize(("call", "arguments", "said"), cases(METHODS))
def test_a_wrong_argument_is_refused_by_the_blocking_client(
    call: Callable[..., Any], arguments: dict[str, Any], said: str
) -> None:
    with blocking.Kinesumer("a") as client:
        with pytest.raises(ConfigurationError, match=said):
            getattr(client, call.__name__)(**arguments)


def test_each_option_of_a_handler_is_refused_as_that_of_run() -> None:
    wrong = WRONG[Kinesumer.run]
    own = set(inspect.signature(Handler).parameters) - {"function"}
    assert own <= wrong.keys()

    async def refuse(name: str, value: Any) -> None:
        async with Kinesumer("a") as client:
            with pytest.raises(ConfigurationError):
                await client.run({"orders": Handler(handle, **{name: value})})

    for name in own:
        for value in wrong[name]:
            asyncio.run(refuse(name, value))


NOT_OF_CONFIG: list[Any] = [
    *(None, "2", b"2", [], True, 0.5j, 0, -1),
    *(math.nan, math.inf, -math.inf, 10**400),
]
VALID = [("label", "2"), ("max_shards", None), ("rebalance_delay_seconds", 0)]


@pytest.mark.parametrize("value", NOT_OF_CONFIG, ids=lambda value: f"{value!r:.9}")
@pytest.mark.parametrize("name", inspect.signature(Config).parameters)
def test_a_config_takes_values_of_its_types_only(name: str, value: Any) -> None:
    if (name, value) in VALID:
        Config(**{name: value})
        return
    with pytest.raises(ConfigurationError, match=name):
        Config(**{name: value})


def test_a_client_is_entered_once() -> None:
    client = Kinesumer("a")

    async def enter() -> None:
        async with client:
            pass

    asyncio.run(enter())
    with pytest.raises(ConfigurationError, match=r"once: create one for each asyncio"):
        asyncio.run(enter())


async def test_the_statements_of_the_other_client_are_refused() -> None:
    async with Kinesumer("a") as client:
        records: Any = client.consume("orders")
        for statement in (iter, lambda it: it.__enter__()):
            with pytest.raises(ConfigurationError, match=r"kinesumer\.blocking"):
                statement(records)
    wrong: Any = Kinesumer("b")
    with pytest.raises(ConfigurationError, match="use `async with`"), wrong:
        pass
    threads: Any = blocking.Kinesumer("c")
    with pytest.raises(ConfigurationError, match=r"with asyncio, kinesumer\.Kinesumer"):
        async with threads:
            pass


def test_async_for_over_blocking_records_is_refused() -> None:
    with blocking.Kinesumer("a") as client:
        records: Any = client.consume("orders")
        with pytest.raises(ConfigurationError, match="use `with` and `for`"):
            aiter(records)


def test_a_list_in_one_text_is_refused_with_the_list() -> None:
    with blocking.Kinesumer("a") as client:
        with pytest.raises(ConfigurationError, match=r"\['orders', 'payments'\]"):
            client.consume("orders, payments")


def test_a_handler_with_two_parameters_is_refused_with_both_ways_out() -> None:
    with blocking.Kinesumer("a") as client:
        with pytest.raises(ConfigurationError, match=r"'session'.*functools\.partial"):
            client.run("orders", handle_with_session)  # type: ignore[arg-type]
