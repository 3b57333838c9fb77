"""Test that the consumer of an app is found, registered once and waited for."""

from __future__ import annotations

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


async def test_a_consumer_is_registered_once_and_waited_for_until_it_is_active(
    world: World,
) -> None:
    calls = ScriptedCalls()
    calls.answers.extend([MISSING, REGISTERED, CREATING, CREATING])
    found = await StreamConsumers(calls).require_active("billing")
    assert (found.arn, found.status) == (consumer_arn(), "ACTIVE")
    assert calls.consumer_calls == [DESCRIBE, REGISTER, *[DESCRIBE] * 3]


async def test_a_consumer_that_is_being_deleted_is_waited_for_and_registered_again(
    world: World,
) -> None:
    calls = ScriptedCalls()
    deleting = {"ConsumerDescription": described("DELETING")}
    calls.answers.extend([deleting, MISSING, REGISTERED])
    found = await StreamConsumers(calls).require_active("billing")
    assert found.status == "ACTIVE"
    assert calls.consumer_calls == [DESCRIBE, DESCRIBE, REGISTER, DESCRIBE]


async def test_a_consumer_that_is_never_active_ends_the_wait(world: World) -> None:
    calls = ScriptedCalls()
    calls.status = "CREATING"
    began = world.loop.time()
    with pytest.raises(FatalError, match="is CREATING after 60 s instead of ACTIVE"):
        await StreamConsumers(calls).require_active("billing")
    assert ACTIVE_SECONDS <= world.loop.time() - began < ACTIVE_SECONDS + 5


async def test_a_registered_consumer_that_is_never_listed_ends_the_wait(
    world: World,
) -> None:
    calls = ScriptedCalls()
    calls.answers.extend([MISSING, REGISTERED, *[MISSING] * 200])
    with pytest.raises(FatalError, match="is missing after"):
        await StreamConsumers(calls).require_active("billing")
    assert calls.consumer_calls.count(REGISTER) == 1


async def test_a_kinesis_that_answers_again_is_waited_for(world: World) -> None:
    calls = ScriptedCalls()
    calls.answers.extend(SourceUnavailableError("timed out") for _ in range(20))
    assert (await StreamConsumers(calls).require_active("billing")).status == "ACTIVE"


async def test_a_kinesis_that_does_not_answer_ends_the_wait(world: World) -> None:
    calls = ScriptedCalls()
    calls.answers.extend(SourceUnavailableError("timed out") for _ in range(200))
    with pytest.raises(SourceUnavailableError, match="timed out"):
        await StreamConsumers(calls).require_active("billing")


# --- the quota ---


def listed(count: int, **more: object) -> dict[str, object]:
    names = [described(name=f"consumer-{number}") for number in range(count)]
    return {"Consumers": names, **more}


async def test_a_throttled_registration_is_repeated(world: World) -> None:
    calls = ScriptedCalls()
    throttled = SourceThrottledError("LimitExceededException")
    listing = listed(MAX_CONSUMERS - 1)
    calls.answers.extend([MISSING, throttled, listing, MISSING, REGISTERED])
    found = await StreamConsumers(calls).require_active("billing")
    assert found.status == "ACTIVE"
    assert calls.consumer_calls == [
        *(DESCRIBE, REGISTER, LIST),
        *(DESCRIBE, REGISTER, DESCRIBE),
    ]


async def test_the_quota_of_consumers_counts_all_pages(world: World) -> None:
    calls = ScriptedCalls()
    throttled = SourceThrottledError("LimitExceededException")
    pages = [listed(MAX_CONSUMERS - 1, NextToken="more"), listed(1)]
    calls.answers.extend([MISSING, throttled, *pages])
    with pytest.raises(ConfigurationError, match="has 20 registered consumers"):
        await StreamConsumers(calls).require_active("billing")


async def test_calls_that_come_too_fast_are_not_taken_for_the_quota(
    world: World,
) -> None:
    """In the mode On-demand Advantage, a stream may have 50 consumers."""
    calls = ScriptedCalls()
    throttled = SourceThrottledError("LimitExceededException: Rate exceeded for you")
    calls.answers.extend([MISSING, throttled, MISSING, REGISTERED])
    found = await StreamConsumers(calls).require_active("billing")
    assert found.status == "ACTIVE"
    assert LIST not in calls.consumer_calls


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
