"""Run one consumer over HTTP in its own process.

    python -m benchmarks.peers NAME RECORDS

NAME is kinesumer, kinesumer-json, kinesumer-columns, fan-out, fan-out-columns,
receive-only, go-sdk, aioboto3, async-kinesis or kcl-rs. kinesumer-json does not use the
compiled decoder, and fan-out is kinesumer with subscriptions. AWS_ENDPOINT_URL_KINESIS
is the server to read from. Prints records per CPU second of the consumer's process,
without its start. go-sdk needs Go, and the last three need their own environment: see
``benchmarks.consume``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import time
from functools import partial
from itertools import cycle
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SHARDS = 4
STREAM = f"canned-{SHARDS}"
# kinesumer limits the read rate of a shard, but so many shards keep it busy.
MANY = "canned-64"
COMMIT_SECONDS = 5.0  # as often as kinesumer stores positions
START_SECONDS = 300.0  # kcl-rs reads its first record after more than a minute


async def plain_loop(records: int) -> float:
    """Read the shards in turn with aioboto3, and iterate over all records."""
    import aioboto3

    count, began = 0, 0.0
    async with aioboto3.Session().client("kinesis") as client:
        shards = (await client.list_shards(StreamName=STREAM))["Shards"]
        iterators = {}
        for shard in shards:
            answer = await client.get_shard_iterator(
                StreamName=STREAM,
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )
            iterators[shard["ShardId"]] = answer["ShardIterator"]
        for shard_id in cycle(iterators):
            answer = await client.get_records(ShardIterator=iterators[shard_id])
            iterators[shard_id] = answer["NextShardIterator"]
            for _ in answer["Records"]:
                count += 1
                if count == records:
                    return count / (time.process_time() - began)
            if not began:  # the first page isn't measured
                count, began = 0, time.process_time()
    raise AssertionError


async def async_kinesis(records: int) -> float:
    """Iterate over async-kinesis' consumer, and let it parse nothing."""
    from kinesis import Consumer  # type: ignore[import-not-found,unused-ignore]
    from kinesis.processors import (  # type: ignore[import-not-found,unused-ignore]
        StringProcessor,
    )

    class Bytes(StringProcessor):  # type: ignore[misc,unused-ignore]
        def parse(self, data: Any) -> Any:
            yield data

    count, began = -records // 4, 0.0  # skip a quarter, since reads run ahead
    endpoint = os.environ["AWS_ENDPOINT_URL_KINESIS"]
    async with Consumer(
        STREAM,
        endpoint_url=endpoint,
        region_name="us-east-1",
        processor=Bytes(),
        sleep_time_no_records=0.01,
    ) as consumer:
        while True:
            async for _ in consumer:
                count += 1
                if not count:
                    began = time.process_time()
                if count == records:
                    return count / (time.process_time() - began)


async def kcl_rs(records: int) -> float:
    """Iterate over the records that kcl-rs gives to its processors, by polling."""
    from kcl_rs import (  # type: ignore[import-not-found,unused-ignore]
        RecordProcessorBase,
        Scheduler,
    )

    counted: SimpleQueue[int] = SimpleQueue()

    class Counter(RecordProcessorBase):  # type: ignore[misc,unused-ignore]
        def initialize(self, initialize_input: Any) -> None:
            self._stored_at = time.monotonic()

        def process_records(self, process_records_input: Any) -> None:
            for _ in process_records_input.records:
                pass
            counted.put(len(process_records_input.records))
            if time.monotonic() - self._stored_at > COMMIT_SECONDS:
                process_records_input.checkpointer.checkpoint()
                self._stored_at = time.monotonic()

        def lease_lost(self, lease_lost_input: Any) -> None: ...
        def shard_ended(self, shard_ended_input: Any) -> None: ...
        def shutdown_requested(self, shutdown_requested_input: Any) -> None: ...

    if "AWS_CA_BUNDLE" in os.environ:
        os.environ["SSL_CERT_FILE"] = os.environ["AWS_CA_BUNDLE"]
    scheduler = Scheduler(
        stream_name=MANY,
        application_name=f"bench-{os.getpid()}",
        record_processor_factory=Counter,
        region="us-east-1",
        initial_position="TRIM_HORIZON",
        retrieval_mode="POLLING",
        max_records=10_000,
        idle_time_between_reads_millis=200,
    )
    scheduler.start()  # it runs on its own threads, and takes a minute
    count, began = -records // 4, 0.0  # skip a quarter, since reads run ahead
    while not began or count < records:
        count += counted.get(timeout=START_SECONDS)
        if not began and count >= 0:
            count, began = 0, time.process_time()
    rate = count / (time.process_time() - began)
    scheduler.shutdown()
    return rate


async def kinesumer(records: int, fan_out: str | None = None) -> float:
    """Iterate over kinesumer's records through its public interface."""
    from benchmarks.canned_source import drain, set_up_telemetry
    from kinesumer import Kinesumer, Start, Stream

    set_up_telemetry()
    async with Kinesumer(f"bench-{os.getpid()}", table="state") as client:
        stream = Stream(MANY, fan_out=fan_out, start=Start.TRIM_HORIZON)
        spent = await drain(client.consume(stream), records, skip=records // 4)
        return spent.per_cpu_second


async def columns(records: int, fan_out: str | None = None) -> float:
    """Iterate over kinesumer's records as columns, and look at each column."""
    from benchmarks.canned_source import set_up_telemetry
    from kinesumer import Kinesumer, Start, Stream

    set_up_telemetry()
    count, began = -records // 4, 0.0  # skip a quarter, since reads run ahead
    async with Kinesumer(f"bench-{os.getpid()}", table="state") as client:
        stream = Stream(MANY, fan_out=fan_out, start=Start.TRIM_HORIZON)
        async for batch in client.consume(stream).batches(columns=True):
            assert len(batch.data) == len(batch.sequence_number) == len(batch)
            count += len(batch)
            if not began and count >= 0:
                count, began = 0, time.process_time()
            elif count >= records:
                return count / (time.process_time() - began)
    raise AssertionError


async def without_native(records: int) -> float:
    """Iterate over kinesumer's records as if the decoder were not compiled."""
    sys.modules["kinesumer.wire._native"] = None  # type: ignore[assignment]
    return await kinesumer(records)


async def over_aiohttp(records: int) -> float:
    """Iterate over kinesumer's records, received through one session of aiohttp."""
    from aiohttp import ClientSession

    from kinesumer.aws.http.client import Route
    from kinesumer.aws.http.connection import Answer
    from kinesumer.aws.http.event_stream import RefusedError

    async def send(route: Route, request: bytes, reservation: Any) -> Answer:
        address, loop = route.address, asyncio.get_running_loop()
        if loop not in sessions:  # the state store has an event loop of its own
            sessions[loop] = ClientSession()
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        async with sessions[loop].post(
            f"{address.url}{first.split()[1]}",
            data=body,
            headers=dict(line.split(": ", 1) for line in lines),
            ssl=address.tls or True,
        ) as answer:
            size = answer.content_length
            if reservation is not None and not reservation.covers(size):
                await reservation.grow(size)
            body = await answer.read()
            if answer.status != 200:
                raise RefusedError(answer.status, body)
            return Answer(answer.status, bytearray(body), answer.headers.get("date"))

    sessions: dict[Any, ClientSession] = {}
    Route.send = send  # type: ignore[assignment,method-assign]
    rate = await kinesumer(records)
    await sessions[asyncio.get_running_loop()].close()
    return rate


async def with_fastnet(records: int, consumer: Any) -> float:
    """Run a consumer with the transports of aiofastnet."""
    import aiofastnet  # type: ignore[import-not-found,unused-ignore]

    aiofastnet.patch_loop(asyncio.get_running_loop())
    return float(await consumer(records))


async def go_sdk(records: int) -> float:
    """Run a loop over AWS's SDK for Go, which measures itself."""
    program = Path(__file__).with_name("go")
    command = ["go", "run", ".", STREAM, str(records)]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=program, stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout)


async def receive_only(records: int) -> float:
    """Receive GetRecords responses into one buffer, and decode nothing."""
    return await asyncio.to_thread(_receive, records)


def _receive(records: int) -> float:
    url = urlsplit(os.environ["AWS_ENDPOINT_URL_KINESIS"])
    address = url.hostname or "", url.port or 0
    body = json.dumps({"ShardIterator": "0"})
    request = (
        "POST / HTTP/1.1\r\nhost: localhost\r\nx-amz-target: Kinesis.GetRecords\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    buffer = memoryview(bytearray(64 << 20))
    with socket.create_connection(address) as plain:
        connection = plain
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
            connection = context.wrap_socket(plain, server_hostname=address[0])
        # The first page tells how many records a page has, and isn't measured.
        a_page = bytes(buffer[: _receive_page(connection, request, buffer)])
        per_page = a_page.count(b'"SequenceNumber"')
        count, began = 0, time.thread_time()
        while count < records:
            _receive_page(connection, request, buffer)
            count += per_page
        return count / (time.thread_time() - began)


def _receive_page(connection: socket.socket, request: bytes, buffer: memoryview) -> int:
    """Receive one response, and return its size."""
    connection.sendall(request)
    filled, size = 0, 1 << 30
    while filled < size:
        filled += connection.recv_into(buffer[filled:])
        if size == 1 << 30:
            head, end, _ = bytes(buffer[: min(filled, 4096)]).partition(b"\r\n\r\n")
            if end:
                length = head.lower().partition(b"content-length:")[2]
                size = len(head) + len(end) + int(length.partition(b"\r\n")[0])
    return filled


CONSUMERS: dict[str, Callable[[int], Coroutine[None, None, float]]] = {
    "kinesumer": kinesumer,
    "kinesumer-json": without_native,
    "kinesumer-columns": columns,
    "go-sdk": go_sdk,
    "aiohttp": over_aiohttp,
    "kinesumer-fastnet": partial(with_fastnet, consumer=kinesumer),
    "aiohttp-fastnet": partial(with_fastnet, consumer=over_aiohttp),
    "fan-out": partial(kinesumer, fan_out="bench"),
    "fan-out-columns": partial(columns, fan_out="bench"),
    "receive-only": receive_only,
    "aioboto3": plain_loop,
    "async-kinesis": async_kinesis,
    "kcl-rs": kcl_rs,
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    print(asyncio.run(CONSUMERS[sys.argv[1]](int(sys.argv[2]))))
