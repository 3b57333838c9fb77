"""The backends of the contract suite; subprocesses are started once.

Any other endpoint (LocalStack, or AWS itself as "aws" with the credentials in use):
KINESUMER_TEST_ENDPOINT=http://127.0.0.1:4566 scripts/test -m localstack
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from kinesumer.aws.dynamodb import create_table, open_store
from kinesumer.aws.session import ClientFactory
from kinesumer.local import EmbeddedAws, background
from kinesumer.testing.memory import MemoryStore
from tests.integration.contract import servers
from tests.integration.contract.streams import (
    AwsStreams,
    EmbeddedStreams,
    ManualClock,
    MemoryStreams,
    Streams,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kinesumer.ports import StateStore

ENDPOINT = "KINESUMER_TEST_ENDPOINT"
ANY_ENDPOINT = (
    [pytest.param("endpoint", marks=pytest.mark.localstack)]
    if os.environ.get(ENDPOINT)
    else []
)
LOADER = create_loader()


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[str]:
    """kinesis-local's endpoint."""
    with servers.kinesis_local() as url:
        yield url


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    """MiniStack's endpoint."""
    with servers.ministack() as url:
        yield url


@pytest.fixture
def embedded() -> Iterator[EmbeddedAws]:
    """The embedded AWS, anew for each test: some put its clock forward."""
    with background(EmbeddedAws()) as aws:
        yield aws


@pytest.fixture
def name() -> str:
    """A name for a stream or table that no other test has."""
    return f"kinesumer-test-{uuid.uuid4().hex[:12]}"


async def _reach(
    backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point the environment to a backend."""
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    if backend == "endpoint":
        url = os.environ[ENDPOINT]
        environment = {} if url == "aws" else environment | {"AWS_ENDPOINT_URL": url}
    elif backend == "embedded":
        environment |= request.getfixturevalue("embedded").environment()
    else:
        url = request.getfixturevalue(backend.replace("-", "_"))
        environment["AWS_ENDPOINT_URL"] = url
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)


@pytest.fixture(params=["memory", "embedded", "ministack", *ANY_ENDPOINT])
async def store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> AsyncIterator[StateStore]:
    """An empty state store of each backend."""
    if request.param == "memory":
        yield MemoryStore(ManualClock())
        return
    await _reach(request.param, request, monkeypatch)
    async with ClientFactory(_session()) as clients, _plain("dynamodb") as client:
        opened = await open_store(clients, name)
        await create_table(opened)
        try:
            yield opened
        finally:
            await client.delete_table(TableName=name)


@pytest.fixture(params=["memory", "embedded", "ministack", *ANY_ENDPOINT])
async def absent_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> AsyncIterator[StateStore]:
    """A state store whose table doesn't exist."""
    if request.param == "memory":
        memory = MemoryStore(ManualClock())
        memory.delete_table()
        yield memory
        return
    await _reach(request.param, request, monkeypatch)
    async with ClientFactory(_session()) as clients:
        yield await open_store(clients, name)


@pytest.fixture(
    params=["memory", "embedded", "kinesis-local", "ministack", *ANY_ENDPOINT]
)
async def streams(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Streams]:
    """Kinesis of each backend."""
    if request.param == "memory":
        yield MemoryStreams()
        return
    await _reach(request.param, request, monkeypatch)
    async with ClientFactory(_session()) as clients, _plain("kinesis") as client:
        opened = AwsStreams(request.param, clients, client)
        if request.param == "embedded":
            aws = request.getfixturevalue("embedded")
            opened = EmbeddedStreams(aws, clients, client)
        try:
            yield opened
        finally:
            await opened.close()


@pytest.fixture(autouse=True)
def deviations(request: pytest.FixtureRequest) -> None:
    """Skip a case that its ``deviates`` mark says a backend answers unlike AWS."""
    if hasattr(request.node, "callspec"):
        backend = request.node.callspec.params.get(
            "streams", request.node.callspec.params.get("store")
        )
        for mark in request.node.iter_markers("deviates"):
            if mark.args[0] == backend:
                pytest.skip(f"{backend}: {mark.args[1]}")


def _session() -> Any:
    session = AioSession()
    # Reading the services' definitions takes longer than a test.
    session.register_component("data_loader", LOADER)
    return session


def _plain(service: str) -> Any:
    # Not kinesumer's own client: what tests do isn't what its policies must allow.
    return _session().create_client(service)
