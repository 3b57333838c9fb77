"""Test the source of enhanced fan-out: what it reads, and the errors of Kinesis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kinesumer import Kinesumer
from kinesumer.aws import stream_consumers
from kinesumer.aws.http import event_stream
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.errors import (
    ConfigurationError,
    FatalError,
    StartInFutureError,
    StreamRecreatedError,
)
from kinesumer.model.streams import Start, Stream
from kinesumer.testing.kinesis import service
from tests.support.clock import PATIENCE_SECONDS, until
from tests.support.subscriptions import (
    FIRST_SHARD,
    TRANSPORTS,
    FanOutAws,
    Reader,
    fan_out_aws,
)

OTHER = "210987654321"


# --- records ---


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_each_record_arrives_once_through_renewals_a_split_and_a_merge(
    environment: pytest.MonkeyPatch, tmp_path: Path, transport: str
) -> None:
    async with fan_out_aws(
        environment, tmp_path, transport, subscription_seconds=0.15
    ) as served:
        texts = [str(number) for number in range(60)]
        parent = Reader(await served.source())
        for text in texts:
            served.put(text)
            await asyncio.sleep(0.01)
        assert await parent.until(60) == texts
        assert served.subscriptions >= 4
        served.aws.split("orders", FIRST_SHARD)
        left, right = await parent.end()
        assert left.parents == right.parents == (FIRST_SHARD,)
        served.put("left")
        child = Reader(await served.source(), left.shard_id)
        assert await child.until(1) == ["left"]
        served.aws.merge("orders", left.shard_id, right.shard_id)
        [merged] = await child.end()
        assert set(merged.parents) == {left.shard_id, right.shard_id}
        assert parent.errors == child.errors == []


async def test_a_start_in_the_future_is_waited_for(served: FanOutAws) -> None:
    source = await served.source()
    soon = Start(type="AT_TIMESTAMP", timestamp=served.aws._state.clock.now() + 60)
    iterator = await source.get_iterator(FIRST_SHARD, soon)
    with pytest.raises(StartInFutureError):
        await source.get_records(iterator, 10)


# --- broken subscriptions ---


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut", "broke"),
        ("exception_event", "InternalFailure"),
        ("corrupt", "checksum"),
        ("stall", "no event arrived"),
    ],
)
async def test_a_broken_subscription_goes_on_after_its_last_event(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    transport: str,
    kind: Any,
    message: str,
) -> None:
    environment.setattr(event_stream, "SILENCE_SECONDS", 0.4)
    async with fan_out_aws(environment, tmp_path, transport) as served:
        reader = Reader(await served.source())
        texts = [str(number) for number in range(20)]
        for text in texts:
            if text in ("5", "12"):
                await reader.until(int(text))
                served.aws.fault(kind, count=1)
                errors = len(reader.errors)
                served.put(text)
                while len(reader.errors) == errors:
                    await reader.change()
            else:
                served.put(text)
        assert await reader.until(20) == texts
        assert len(reader.errors) == 2
        assert message in str(reader.errors[0])
        await reader.stop()
    assert not [record for record in caplog.records if record.name == "asyncio"]


# --- other subscribers ---


async def test_a_deregistered_consumer_is_not_taken_for_an_ended_shard(
    served: FanOutAws,
) -> None:
    reader = Reader(await served.source())
    await reader.change()
    await StreamConsumers(await served.polling()).deregister("billing")
    with pytest.raises(FatalError, match="register it again"):
        await reader.end()


def recreate(served: FanOutAws) -> None:
    """Delete the stream, and create one of the same name with other records."""
    served.aws.advance(2)
    served.aws.delete_stream("orders")
    served.aws.create_stream("orders")
    served.put("of the new stream")


@asynccontextmanager
async def consuming(
    served: FanOutAws, *given: str, **options: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """Consume these records by fan-out before the block, and no others during it."""
    served.aws.create_table()
    served.put(*given)
    stream, texts = Stream("orders", fan_out="billing", **options), list[str]()

    async def consume(client: Kinesumer) -> None:
        async for record in client.consume(stream, start=Start.TRIM_HORIZON):
            texts.append(record.data.decode())

    async with asyncio.timeout(PATIENCE_SECONDS), Kinesumer("app") as client:
        task = asyncio.create_task(consume(client))
        await until(lambda: served.subscriptions and len(texts) == len(given))
        yield task
    assert texts == list(given)


@pytest.mark.usefixtures("nobody_else_joins")
@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("has_records", [False, True])
@pytest.mark.parametrize("fault", [None, "cut", "stall", "exception_event"])
async def test_a_client_ends_when_its_stream_is_recreated(
    served: FanOutAws,
    environment: pytest.MonkeyPatch,
    fault: Any,
    has_records: bool,
    fallback: bool,
) -> None:
    environment.setattr(event_stream, "SILENCE_SECONDS", 0.3)
    given = ["a", "b"] * has_records
    async with consuming(served, *given, fan_out_fallback=fallback) as task:
        if fault is not None:
            served.aws.fault(fault, count=1)
        recreate(served)
        with pytest.raises(StreamRecreatedError, match=r"orders .* created again"):
            await task


@pytest.mark.usefixtures("nobody_else_joins")
async def test_a_reader_ends_although_the_consumers_name_is_registered_again(
    served: FanOutAws,
) -> None:
    async with consuming(served) as task:
        recreate(served)
        await StreamConsumers(await served.polling()).require_active("billing")
        with pytest.raises(StreamRecreatedError):
            await task


# --- the start ---


async def test_a_role_subscribes_to_a_stream_of_another_account(
    served: FanOutAws,
) -> None:
    role = served.aws.create_role("reader", account=OTHER)
    theirs = served.aws.create_stream("orders", account=OTHER)
    served.aws.put(theirs, b"theirs", explicit_hash_key=0)
    served.put("ours")
    source = await served.source(role_arn=role.arn)
    assert (await source.describe()).arn == theirs
    reader = Reader(source)
    assert await reader.until(1) == ["theirs"]
    await reader.stop()


async def test_an_endpoint_without_fan_out_is_refused_at_the_start(
    served: FanOutAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(service._DECODERS, "DescribeStreamConsumer")
    with pytest.raises(FatalError, match="UnknownOperation"):
        await served.source()


async def test_a_proxy_is_refused_at_the_start(
    served: FanOutAws, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", served.aws.url)
    environment.setenv("NO_PROXY", "")
    with pytest.raises(ConfigurationError, match="direct connections"):
        await served.source()


def is_trying() -> bool:
    """Return whether a task looks for the stream consumer."""
    return any("Consumer.open" in repr(task) for task in asyncio.all_tasks())


async def test_a_running_attempt_ends_with_its_client(
    served: FanOutAws, environment: pytest.MonkeyPatch
) -> None:
    served.aws.deny("kinesis:RegisterStreamConsumer")
    environment.setattr(stream_consumers, "FALLBACK_SECONDS", 0.0)
    source = await served.source(fan_out_fallback=True)
    served.aws.allow()
    served.aws.fault("latency", operation="Describe*", latency_seconds=60)
    await source.get_iterator(FIRST_SHARD, Start.TRIM_HORIZON)
    assert is_trying()
    await served.clients.__aexit__(None, None, None)
    assert not is_trying()
