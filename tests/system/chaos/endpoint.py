"""Puts emulators of AWS behind one port, and injects faults there."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiohttp import web
from botocore.config import Config
from botocore.session import Session

from kinesumer.testing.embedded_aws.faults import Call, Fault, Faults
from kinesumer.wire.rows import DEFINITION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDictProxy

    from kinesumer.testing.embedded_aws.faults import Kind

WAIT_SECONDS = 30.0
OPERATIONS = {"Query": "query", "CreateTable": "create_table"}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

THEIRS = ("Host", "Content-Length", "Transfer-Encoding", "Connection")

REFUSALS = {
    "throttle": (400, "ProvisionedThroughputExceededException"),
    "error": (500, "InternalFailure"),
    "expired_iterator": (400, "ExpiredIteratorException"),
}


class Endpoint:
    """Servers of Kinesis and DynamoDB behind a proxy that injects faults."""

    def __init__(self, kinesis: str, dynamodb: str, seed: int) -> None:
        targets = {"kinesis": kinesis, "dynamodb": dynamodb, "sts": dynamodb}
        self._front = Front(targets, seed)
        self._kinesis = self._client("kinesis", kinesis)
        self._dynamodb = self._client("dynamodb", dynamodb)

    def __enter__(self) -> Self:
        self._front.start()
        self.port = self._front.port
        return self

    def __exit__(self, *_: object) -> None:
        self._front.stop()
        self._kinesis.close()
        self._dynamodb.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        known = {k: os.environ[k] for k in CREDENTIALS if k in os.environ}
        return {**CREDENTIALS, **known, "AWS_ENDPOINT_URL": self.url}

    # --- streams ---------------------------------------------------------------------

    def create_stream(self, name: str, shards: int) -> str:
        self._kinesis.create_stream(StreamName=name, ShardCount=shards)
        arn: str = self._until_active(StreamName=name)["StreamARN"]
        return arn

    def put(self, stream: str, data: bytes, partition_key: str) -> tuple[str, str]:
        answer = self._kinesis.put_record(
            StreamARN=stream, Data=data, PartitionKey=partition_key
        )
        return answer["ShardId"], answer["SequenceNumber"]

    def split(self, stream: str, shard_id: str) -> None:
        [keys] = [s for s in self._open(stream) if s["ShardId"] == shard_id]
        first, last = hash_keys(keys)
        self._kinesis.split_shard(
            StreamARN=stream,
            ShardToSplit=shard_id,
            NewStartingHashKey=str((first + last + 1) // 2),
        )
        self._until_active(StreamARN=stream)

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> None:
        self._kinesis.merge_shards(
            StreamARN=stream,
            ShardToMerge=shard_id,
            AdjacentShardToMerge=adjacent_shard_id,
        )
        self._until_active(StreamARN=stream)

    def open_shards(self, stream: str) -> list[str]:
        return [s["ShardId"] for s in sorted(self._open(stream), key=hash_keys)]

    def shards(self, stream: str) -> list[dict[str, Any]]:
        pages = self._kinesis.get_paginator("list_shards").paginate(StreamARN=stream)
        return [shard for page in pages for shard in page["Shards"]]

    def _open(self, stream: str) -> list[dict[str, Any]]:
        ends = "EndingSequenceNumber"
        return [s for s in self.shards(stream) if ends not in s["SequenceNumberRange"]]

    def _until_active(self, **stream: str) -> dict[str, Any]:
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            answer = self._kinesis.describe_stream_summary(**stream)
            summary: dict[str, Any] = answer["StreamDescriptionSummary"]
            if summary["StreamStatus"] == "ACTIVE":
                return summary
            time.sleep(0.05)
        raise RuntimeError(f"{stream} isn't active after {WAIT_SECONDS:g} s")

    # --- the table -------------------------------------------------------------------

    def create_table(self, name: str) -> None:
        self._dynamodb.create_table(TableName=name, **DEFINITION)
        self._dynamodb.get_waiter("table_exists").wait(TableName=name)

    def dynamodb(self, operation: str, body: bytes) -> Any:
        call = getattr(self._dynamodb, OPERATIONS[operation])
        return call(**json.loads(body))

    # --- faults ----------------------------------------------------------------------

    def fault(self, kind: Kind, **which: Any) -> int:
        return self._front.add(Fault(kind=kind, **which))

    def clear_faults(self, number: int | None = None) -> None:
        self._front.remove(number)

    def _client(self, service: str, url: str) -> Any:
        return Session().create_client(
            service,
            region_name=os.environ.get("AWS_REGION", CREDENTIALS["AWS_REGION"]),
            endpoint_url=url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard"}, max_pool_connections=4),
        )


def hash_keys(shard: dict[str, Any]) -> tuple[int, int]:
    found = shard["HashKeyRange"]
    return int(found["StartingHashKey"]), int(found["EndingHashKey"])


class Front:
    """Forwards each request to its server, or answers it with a fault."""

    def __init__(self, targets: Mapping[str, str], seed: int) -> None:
        self.port = 0
        self._targets = targets
        self._faults = Faults(random.Random(seed))
        self._lock = threading.Lock()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._session: aiohttp.ClientSession
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="front"
        )

    def start(self) -> None:
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        loop, over = self._ready.result()
        loop.call_soon_threadsafe(over.set)
        self._thread.join()

    def add(self, fault: Fault) -> int:
        with self._lock:
            return self._faults.add(fault, time.monotonic())

    def remove(self, number: int | None) -> None:
        with self._lock:
            self._faults.remove(number)

    async def _serve(self) -> None:
        over = asyncio.Event()
        runner = web.ServerRunner(
            web.Server(self._handle, access_log=None), shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            self._ready.set_result((asyncio.get_running_loop(), over))
            await over.wait()
            await runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        call = called(http.headers)
        body = await http.read()
        with self._lock:
            struck = self._faults.strike(call, time.monotonic())
        kinds = {fault.kind for fault in struck}
        for fault in struck:
            await asyncio.sleep(fault.latency_seconds)
        for kind in ("throttle", "error", "expired_iterator"):
            if kind in kinds:
                return refused(kind)
        if "refuse" in kinds:
            return hung_up(http)
        answer = await self._pass_on(call, http, body)
        return hung_up(http) if "drop" in kinds else answer

    async def _pass_on(
        self, call: Call, http: web.BaseRequest, body: bytes
    ) -> web.StreamResponse:
        url = self._targets[call.service] + http.path_qs
        headers = {k: v for k, v in http.headers.items() if k not in THEIRS}
        try:
            async with self._session.request(
                http.method, url, data=body, headers=headers
            ) as answer:
                content = await answer.read()
                kept = {k: v for k, v in answer.headers.items() if k not in THEIRS}
                return web.Response(status=answer.status, body=content, headers=kept)
        except aiohttp.ClientError:
            return refused("error")  # the emulator itself fails sometimes


def called(headers: CIMultiDictProxy[str]) -> Call:
    target, _, operation = headers.get("X-Amz-Target", "").partition(".")
    return Call(
        service=target.partition("_")[0].lower() or "sts",
        operation=operation,
        user_agent=headers.get("User-Agent", ""),
    )


def refused(kind: str) -> web.Response:
    status, code = REFUSALS[kind]
    body = json.dumps({"__type": code, "message": "by order of the chaos"})
    return web.Response(
        status=status, text=body, content_type="application/x-amz-json-1.1"
    )


def hung_up(http: web.BaseRequest) -> web.Response:
    if http.transport is not None:
        http.transport.abort()
    return web.Response()
