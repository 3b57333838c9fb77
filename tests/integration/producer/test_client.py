"""Test the producer, and its twin for threads, against the embedded AWS."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kinesumer import (
    AccessDeniedError,
    ConfigurationError,
    Producer,
    PutFailedError,
    Stream,
    StreamMissingError,
)
from kinesumer.blocking import Producer as BlockingProducer
from kinesumer.testing import EmbeddedAws
from tests.support.producers import consumed, texts

pytestmark = pytest.mark.usefixtures("nobody_else_joins")

KEYS = [f"key-{number}" for number in range(23)]


async def put_all(producer: Producer, data: list[bytes]) -> list[Any]:
    return [
        await producer.put(text, partition_key=KEYS[number % len(KEYS)])
        for number, text in enumerate(data)
    ]


@pytest.mark.parametrize("aggregate", [False, True])
async def test_a_consumer_gets_each_record_once_at_the_place_of_its_result(
    kinesumer_aws: EmbeddedAws, aggregate: bool
) -> None:
    kinesumer_aws.create_stream("orders", shards=3)
    data = texts(1500)
    async with Producer("orders", aggregate=aggregate, ordered=True) as producer:
        futures = await put_all(producer, data)
        results = await asyncio.gather(*futures)
    records = await consumed(data)
    found = {
        (r.shard_id, r.sequence_number, r.sub_sequence_number): r.data for r in records
    }
    assert [found[result] for result in results] == data
    assert Counter(record.data for record in records) == Counter(data)
    for key in KEYS:
        of_key = [record.data for record in records if record.partition_key == key]
        assert of_key == sorted(of_key)
    assert producer.counts.rows == len(data)
    assert (producer.counts.records < 100) == aggregate


async def test_leaving_the_block_raises_what_was_not_put(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.deny("kinesis:PutRecords")
    with pytest.raises(PutFailedError) as caught:
        async with Producer("orders") as producer:
            await put_all(producer, texts(3))
    assert [record.data for record in caught.value.records] == texts(3)
    assert isinstance(caught.value.__cause__, AccessDeniedError)


async def test_another_error_leaves_the_block_and_the_failure_is_logged(
    kinesumer_aws: EmbeddedAws, caplog: pytest.LogCaptureFixture
) -> None:
    kinesumer_aws.create_stream("orders")
    with pytest.raises(ZeroDivisionError):
        async with Producer("orders", linger_seconds=60) as producer:
            await put_all(producer, texts(3))
            raise ZeroDivisionError
    assert len(await consumed(texts(3))) == 3
    kinesumer_aws.deny("kinesis:PutRecords")
    with pytest.raises(ZeroDivisionError):
        async with Producer("orders") as producer:
            await put_all(producer, texts(3))
            raise ZeroDivisionError
    assert "3 of the records weren't put" in caplog.text


async def test_what_another_task_puts_at_the_end_is_put_or_raised(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    accepted: list[bytes] = []

    async def put_forever(producer: Producer) -> None:
        for text in texts(10**6):
            await producer.put(text, partition_key="k")
            accepted.append(text)
            await asyncio.sleep(0)

    failed: list[bytes] = []
    try:
        async with Producer("orders") as producer:
            task = asyncio.create_task(put_forever(producer))
            await asyncio.sleep(0.2)
    except PutFailedError as error:
        failed += [record.data for record in error.records]
    with pytest.raises(ConfigurationError, match="async with Producer"):
        await task
    put = {record.data for record in await consumed({*accepted} - {*failed})}
    assert put | {*failed} >= {*accepted}


async def test_a_cancelled_block_puts_the_accepted_records(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    entered = asyncio.Event()

    async def work() -> None:
        async with Producer("orders", linger_seconds=60) as producer:
            await put_all(producer, texts(5))
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await consumed(texts(5))) == 5


async def test_streams_are_given_by_arn_and_role(kinesumer_aws: EmbeddedAws) -> None:
    account = "210987654321"
    arn = kinesumer_aws.create_stream("orders", account=account)
    role = kinesumer_aws.create_role("put", account=account, external_id="xyz")
    stream = Stream(arn, role_arn=role.arn, external_id="xyz")
    async with Producer(stream) as producer:
        future = await producer.put(b"x", partition_key="k", explicit_hash_key="7")
        assert (await future).shard_id == "shardId-000000000000"


async def test_what_cannot_work_is_refused_at_the_call(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    wrong: Any
    outside = Producer("orders")
    with pytest.raises(ConfigurationError, match="async with Producer"):
        await outside.put(b"x", partition_key="k")
    with pytest.raises(StreamMissingError, match="missing"):
        async with Producer("missing"):
            pass
    async with Producer("orders") as producer:
        for wrong, reason in (
            ({"data": "text", "partition_key": "k"}, "encode it"),
            ({"data": b"x", "partition_key": 7}, "must be text"),
            (
                {"data": b"x", "partition_key": "k", "explicit_hash_key": 7},
                "explicit_hash_key=7 must be text",
            ),
            ({"data": b"x", "partition_key": ""}, "is empty"),
            ({"data": bytes(1 << 20), "partition_key": "k"}, "1,048,576"),
            (
                {"data": b"x", "partition_key": "k", "explicit_hash_key": "-1"},
                "explicit_hash_key",
            ),
        ):
            with pytest.raises(ConfigurationError, match=reason):
                await producer.put(**wrong)
        await (await producer.put(bytearray(b"x"), partition_key="k"))  # type: ignore[arg-type]


# --- threads --------------------------------------------------------------------------


def in_threads(count: int, work: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_twin_has_the_same_arguments() -> None:
    for name in ("__init__", "put", "flush"):
        ours = inspect.signature(getattr(BlockingProducer, name)).parameters
        assert ours == inspect.signature(getattr(Producer, name)).parameters


@pytest.mark.parametrize("aggregate", [False, True])
def test_several_threads_put_records_in_their_order(
    kinesumer_aws: EmbeddedAws, aggregate: bool
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    with BlockingProducer("orders", aggregate=aggregate, ordered=True) as producer:

        def work(thread: int) -> None:
            for number in range(500):
                producer.put(b"%d %03d" % (thread, number), partition_key=f"{thread}")

        in_threads(4, work)
        result = producer.put(b"5 000", partition_key="k").result(timeout_seconds=30)
        assert result.shard_id.startswith("shardId-")
        producer.flush()
    sent = [b"%d %03d" % (n // 500, n % 500) for n in range(2000)]
    records = asyncio.run(consumed([*sent, b"5 000"]))
    for thread in range(4):
        data = [record.data for record in records if record.data[0] == 48 + thread]
        assert data == [b"%d %03d" % (thread, number) for number in range(500)]


def test_threads_that_put_at_the_end_lose_nothing(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=4)
    accepted: list[bytes] = []
    failed: list[bytes] = []

    def work(producer: BlockingProducer, thread: int) -> None:
        with pytest.raises(ConfigurationError, match="with Producer"):
            for number in itertools.count():
                data = b"%d %d" % (thread, number)
                producer.put(data, partition_key=str(number))
                accepted.append(data)

    threads = []
    try:
        with BlockingProducer("orders", aggregate=True) as producer:
            threads = [
                threading.Thread(target=work, args=(producer, n)) for n in range(3)
            ]
            for thread in threads:
                thread.start()
            while len(accepted) < 1000:
                producer.flush()
    except PutFailedError as error:
        failed += [record.data for record in error.records]
    for thread in threads:
        thread.join()
    put = {r.data for r in asyncio.run(consumed({*accepted} - {*failed}))}
    assert put | {*failed} >= {*accepted}


def test_a_failure_is_raised_in_a_thread(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders")
    with pytest.raises(ConfigurationError, match="with Producer"):
        BlockingProducer("orders").put(b"x", partition_key="k")
    with BlockingProducer("orders") as producer:
        kinesumer_aws.deny("kinesis:PutRecords")
        future = producer.put(b"a", partition_key="k")
        with pytest.raises(PutFailedError, match="access denied"):
            future.result()
        producer.put(b"b", partition_key="k")
        with pytest.raises(PutFailedError) as caught:
            producer.flush()
        assert [record.data for record in caught.value.records] == [b"b"]
    with (
        pytest.raises(PutFailedError, match="1 of the records"),
        BlockingProducer("orders") as producer,
    ):
        producer.put(b"c", partition_key="k")


@pytest.mark.parametrize("half", ["\ud800", "é\udcff", "\udfff" * 256])
async def test_a_key_that_cannot_be_encoded_is_refused_alone(
    kinesumer_aws: EmbeddedAws, half: str
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    async with Producer("orders") as producer:
        for wrong in ({"partition_key": half}, {"explicit_hash_key": half}):
            with pytest.raises(ConfigurationError, match="correct the arguments"):
                await producer.put(b"wrong", **{"partition_key": "key", **wrong})
        await (await producer.put(b"right", partition_key="schlüssel 🗝"))
    with BlockingProducer("orders") as blocking:
        with pytest.raises(ConfigurationError, match="half of a character"):
            blocking.put(b"wrong", partition_key=half)
        blocking.put(b"right", partition_key="schlüssel 🗝").result()
