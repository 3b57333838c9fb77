"""Open the backends of the contract suite. Each server is started once.

To test another endpoint, such as LocalStack, pass its URL. The endpoint "aws" is AWS
itself, with the current credentials:
KINESUMER_TEST_ENDPOINT=http://127.0.0.1:4566 scripts/test -m localstack
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from kinesumer.aws.dynamodb import ensure_table, open_store
from kinesumer.aws.session import ClientFactory
from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.ports import StateStore
from kinesumer.testing import EmbeddedAws, background
from kinesumer.testing.memory import MemoryStore
from kinesumer.testing.trial.acceptance.account import PREFIX, TAG
from kinesumer.testing.trial.acceptance.check import CheckSkippedError
from kinesumer.testing.trial.acceptance.resources import Streams, TableResources
from kinesumer.testing.trial.acceptance.table_resources import StreamedTables
from tests.support import servers
from tests.support.clock import StillClock
from tests.support.deviations import deviation

TAGS = {TAG: "test"}
ENDPOINT = "KINESUMER_TEST_ENDPOINT"
# Tests with the pinned SDK need only one server, since all get the same requests.
EMBEDDED = pytest.param("embedded", marks=pytest.mark.pinned)
ANY_ENDPOINT = (
    [pytest.param("endpoint", marks=pytest.mark.localstack)]
    if os.environ.get(ENDPOINT)
    else []
)
LOADER = create_loader()
BACKENDS = (
    "kinesis",
    "tables",
    "dynamodb",
)  # the fixtures whose parameter is a backend


class Backend(NamedTuple):
    """A server, and kinesumer's AWS clients for it."""

    name: str
    clients: ClientFactory


class EmbeddedStreams(Streams):
    """The streams of the embedded AWS. Its clock is advanced, so tests needn't wait."""

    aws: EmbeddedAws

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        self.aws.advance(seconds)

    async def pass_time(self, seconds: float) -> None:
        self.aws.advance(seconds)

    def now(self) -> float:
        return self.aws._state.clock.now()


class EmbeddedTables(StreamedTables):
    """The tables of the embedded AWS, whose clock and shards are controlled."""

    aws: EmbeddedAws

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        self.aws.advance(seconds)

    async def pass_time(self, seconds: float) -> None:
        self.aws.advance(seconds)

    async def roll_over(self, name: str) -> None:
        self.aws.table_streams.roll_over(name)

    async def split(self, name: str, shard_id: str) -> None:
        self.aws.table_streams.split(name, shard_id)

    async def delete_expired(self, name: str) -> None:
        self.aws.table_streams.delete_expired_items(name)

    def now(self) -> float:
        return self.aws._state.clock.now()


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[str]:
    """Run kinesis-local, and return its endpoint."""
    with servers.kinesis_local() as url:
        yield url


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    """Run MiniStack, and return its endpoint."""
    with servers.ministack() as url:
        yield url


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedAws]:
    """An embedded AWS, whose clock some tests advance."""
    with background(EmbeddedAws(table=None)) as aws:
        yield aws


@pytest.fixture
def name() -> str:
    """Return a name for a stream or a table that no other test uses."""
    return _new_name()


def _new_name() -> str:
    return f"{PREFIX}-test-{uuid.uuid4().hex[:12]}"


def _environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables that point to a backend."""
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    if request.param == "endpoint":
        url = os.environ[ENDPOINT]
        return {} if url == "aws" else environment | {"AWS_ENDPOINT_URL": url}
    if request.param == "embedded":
        aws: EmbeddedAws = request.getfixturevalue("embedded")
        return environment | aws.environment()
    url = request.getfixturevalue(request.param.replace("-", "_"))
    return environment | {"AWS_ENDPOINT_URL": url}


@asynccontextmanager
async def _reach(request: pytest.FixtureRequest) -> AsyncIterator[Backend | None]:
    """Open the clients of a backend. The backend in memory has none."""
    if request.param == "memory":
        yield None
        return
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in _environment(request).items():
            patch.setenv(variable, value)
        async with ClientFactory(_session()) as clients:
            yield Backend(request.param, clients)


def _session() -> Any:
    session = AioSession()
    # Share the loader: reading the services' definitions takes longer than a test.
    session.register_component("data_loader", LOADER)
    return session


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=["memory", EMBEDDED, "ministack", *ANY_ENDPOINT],
)
async def tables(request: pytest.FixtureRequest) -> AsyncIterator[Backend | None]:
    """Open DynamoDB of each backend in turn."""
    async with _reach(request) as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def store(tables: Backend | None) -> AsyncIterator[StateStore]:
    """Create an empty state store in each backend."""
    if tables is None:
        yield MemoryStore(StillClock())
        return
    resources = await TableResources.open(tables.clients)
    table = _new_name()
    await resources.create(table, TAGS)
    opened = await open_store(tables.clients, table)
    await ensure_table(opened)
    yield opened
    await resources.begin_deleting(table)


@pytest_asyncio.fixture(loop_scope="module")
async def absent_store(tables: Backend | None, name: str) -> StateStore:
    """Open a state store whose table doesn't exist."""
    if tables is None:
        memory = MemoryStore(StillClock())
        memory.delete_table()
        return memory
    return await open_store(tables.clients, name)


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[EMBEDDED, "kinesis-local", "ministack", *ANY_ENDPOINT],
)
async def kinesis(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Open Kinesis of each backend in turn."""
    async with _reach(request) as backend:
        assert backend is not None
        yield backend


@pytest_asyncio.fixture(loop_scope="module")
async def streams(
    kinesis: Backend, request: pytest.FixtureRequest
) -> AsyncIterator[Streams]:
    """Return the streams of each backend in turn."""
    if kinesis.name == "embedded":
        embedded = await EmbeddedStreams.open(kinesis.clients, TAGS)
        embedded.aws = request.getfixturevalue("embedded")
        # Earlier tests may have used up the CreateStream calls of this second.
        embedded.aws.advance(1)
        opened: Streams = embedded
    else:
        opened = await Streams.open(kinesis.clients, TAGS)
    yield opened
    for stream in list(opened.created):
        await opened.begin_deleting(stream)


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[EMBEDDED, "ministack", *ANY_ENDPOINT],
)
async def dynamodb(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Open DynamoDB of each backend that has streams of tables, in turn.

    dynalite has none: see issue 66 of github.com/architect/dynalite.
    """
    async with _reach(request) as backend:
        assert backend is not None
        yield backend


@pytest_asyncio.fixture(loop_scope="module")
async def streamed_tables(
    dynamodb: Backend, request: pytest.FixtureRequest
) -> AsyncIterator[StreamedTables]:
    """Return the tables with streams of each backend in turn."""
    if dynamodb.name == "embedded":
        embedded = await EmbeddedTables.open_tagged(dynamodb.clients, TAGS)
        embedded.aws = request.getfixturevalue("embedded")
        embedded.aws.advance(1)
        opened: StreamedTables = embedded
    else:
        opened = await StreamedTables.open_tagged(dynamodb.clients, TAGS)
    yield opened
    for table in list(opened.created):
        await opened.begin_deleting(table)


@pytest.fixture(autouse=True)
def deviations(request: pytest.FixtureRequest) -> None:
    """Skip a check of which ``deviations.py`` says that a backend differs from AWS."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if "part" in params:
        [backend] = (params[name] for name in BACKENDS if name in params)
        reason = deviation(backend, params["part"], params["check"].name)
        if reason is not None:
            pytest.skip(f"{backend}: {reason}")


async def passes(running: Awaitable[None]) -> None:
    """Await a check. A check that can't be made on the backend is a skipped test."""
    try:
        await running
    except CheckSkippedError as reason:
        pytest.skip(str(reason))
