"""Test that the consumer of an app is found, registered once and waited for."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.aws.stream_consumers import (
    ACTIVE_SECONDS,
    MAX_CONSUMERS,
    Consumer,
    StreamConsumer,
    StreamConsumers,
)
from kinesumer.errors import (
    ConfigurationError,
    FatalError,
    SourceThrottledError,
    SourceUnavailableError,
)
from tests.support.scripted_fan_out import ScriptedCalls, consumer_arn, described
from tests.support.world import World

DESCRIBE, REGISTER = "DescribeStreamConsumer", "RegisterStreamConsumer"
LIST = "ListStreamConsumers"
CREATING = {"ConsumerDescription": described("CREATING")}
MISSING = None
REGISTERED: dict[str, object] = {}


DELETING = {"ConsumerDescription": described("DELETING")}
THROTTLED = SourceThrottledError("LimitExceededException")
# In the mode On-demand Advantage, a stream may have 50 consumers.
TOO_FAST = SourceThrottledError("LimitExceededException: Rate exceeded for you")
TIMED_OUT = SourceUnavailableError("timed out")


def listed(count: int, **more: object) -> dict[str, object]:
    names = [described(name=f"consumer-{number}") for number in range(count)]
    return {"Consumers": names, **more}


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        pytest.param(
            [MISSING, REGISTERED, CREATING, CREATING],
            [DESCRIBE, REGISTER, *[DESCRIBE] * 3],
            id="it is registered once",
        ),
        pytest.param(
            [DELETING, MISSING, REGISTERED],
            [DESCRIBE, DESCRIBE, REGISTER, DESCRIBE],
            id="it is registered after a deletion",
        ),
        pytest.param([TIMED_OUT] * 20, [DESCRIBE] * 21, id="Kinesis answers again"),
        pytest.param(
            [MISSING, THROTTLED, listed(MAX_CONSUMERS - 1), MISSING, REGISTERED],
            [DESCRIBE, REGISTER, LIST, DESCRIBE, REGISTER, DESCRIBE],
            id="a throttled registration is repeated",
        ),
        pytest.param(
            [MISSING, TOO_FAST, MISSING, REGISTERED],
            [DESCRIBE, REGISTER, DESCRIBE, REGISTER, DESCRIBE],
            id="calls that come too fast are not taken for the quota",
        ),
    ],
)
async def test_a_consumer_is_waited_for_until_it_is_active(
    world: World, answers: list[Any], made: list[str]
) -> None:
    calls = ScriptedCalls()
    calls.answers.extend(answers)
    found = await StreamConsumers(calls).require_active("billing")
    assert (found.arn, found.status) == (consumer_arn(), "ACTIVE")
    assert calls.consumer_calls == made


FULL = [listed(MAX_CONSUMERS - 1, NextToken="more"), listed(1)]


@pytest.mark.parametrize(
    ("answers", "error", "message"),
    [
        ([CREATING] * 200, FatalError, "is CREATING after 60 s instead of ACTIVE"),
        ([MISSING, REGISTERED, *[MISSING] * 200], FatalError, "is missing after"),
        ([TIMED_OUT] * 200, SourceUnavailableError, "timed out"),
        ([MISSING, THROTTLED, *FULL], ConfigurationError, "has 20 registered consumer"),
    ],
)
async def test_what_never_becomes_active_ends_the_wait(
    world: World, answers: list[Any], error: type[Exception], message: str
) -> None:
    calls = ScriptedCalls()
    calls.answers.extend(answers)
    began = world.loop.time()
    with pytest.raises(error, match=message):
        await StreamConsumers(calls).require_active("billing")
    has_waited = world.loop.time() - began >= ACTIVE_SECONDS
    assert has_waited == (error is not ConfigurationError)
    assert world.loop.time() - began < ACTIVE_SECONDS + 5
    assert calls.consumer_calls.count(REGISTER) <= 1


async def test_a_stream_without_a_listing_has_no_consumers(world: World) -> None:
    calls = ScriptedCalls()
    calls.answers.append(MISSING)
    assert await StreamConsumers(calls).list() == []


async def test_a_description_has_a_name_an_arn_a_status_and_a_time(
    world: World,
) -> None:
    found = await StreamConsumers(ScriptedCalls()).find("billing")
    created = 1767225600.0  # 2026-01-01
    assert found == StreamConsumer("billing", consumer_arn(), "ACTIVE", created)


async def test_an_answer_without_a_description_is_no_answer(world: World) -> None:
    calls = ScriptedCalls()
    calls.answers.extend([{"ConsumerDescription": {}}])
    with pytest.raises(SourceUnavailableError, match=DESCRIBE):
        await StreamConsumers(calls).find("billing")


# --- ARNs ---


async def test_an_arn_is_used_without_a_look(world: World) -> None:
    calls = ScriptedCalls()
    consumer = Consumer(calls, consumer_arn(), falls_back=False)
    await consumer.open()
    assert consumer.arn() == consumer_arn()
    assert consumer.name == "billing"
    assert calls.consumer_calls == []


@pytest.mark.parametrize("falls_back", [True, False])
async def test_an_arn_of_another_stream_is_refused_even_with_fallback(
    world: World, falls_back: bool
) -> None:
    other = "arn:aws:kinesis:us-east-1:999999999999:stream/orders"
    consumer = Consumer(
        ScriptedCalls(), consumer_arn(stream=other), falls_back=falls_back
    )
    with pytest.raises(ConfigurationError, match="999999999999:stream/orders, not of"):
        await consumer.open()
