"""Provide a server that answers like AWS, its environment, and virtual time."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest
import pytest_asyncio
from botocore.loaders import create_loader

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.model.streams import Stream
from tests.integration.aws.stub import AwsStub
from tests.support.subscriptions import FanOutAws, fan_out_aws
from tests.support.world import pytest_pycollect_makeitem, world

__all__ = ["pytest_pycollect_makeitem", "world"]

_loader = cache(create_loader)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of the stub on a loop of their module, to which the stub is bound."""
    for item in items:
        if "stub" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


def _hide_this_machine(patch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            patch.delenv(name)
    patch.setenv("AWS_CONFIG_FILE", os.devnull)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Hide the AWS configuration and instance credentials of this machine."""
    _hide_this_machine(monkeypatch)
    # Otherwise each session that a test creates would read AWS's definitions again.
    monkeypatch.setattr("botocore.session.create_loader", _loader)
    return monkeypatch


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stub() -> AsyncIterator[AwsStub]:
    """Start one server for all tests of a module."""
    async with AwsStub() as stub:
        yield stub


@pytest.fixture
def aws(stub: AwsStub, environment: pytest.MonkeyPatch) -> AwsStub:
    """Return the stub without answers. Point the environment to it."""
    stub.reset()
    environment.setenv("AWS_ENDPOINT_URL", stub.url)
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    return stub


@pytest.fixture
def profiles(
    environment: pytest.MonkeyPatch, aws: AwsStub, tmp_path: Path
) -> Callable[[str], object]:
    """Return a function that writes the configuration file, and remove all keys."""
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    environment.setenv("AWS_MAX_ATTEMPTS", "1")
    environment.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return (tmp_path / "config").write_text


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_clients() -> AsyncIterator[ClientFactory]:
    """Open a factory whose AWS clients the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        _hide_this_machine(patch)
        factory = ClientFactory()
    async with factory as clients:
        yield clients


@pytest.fixture
def clients(aws: AwsStub, shared_clients: ClientFactory) -> ClientFactory:
    """Return the module's clients. Tests that change settings create their own."""
    return shared_clients


@pytest_asyncio.fixture(loop_scope="module")
async def source(aws: AwsStub, clients: ClientFactory) -> KinesisSource:
    """Return a source that opens the stream by name."""
    return await open_source(clients, Stream("orders"))


@pytest.fixture
async def served(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[FanOutAws]:
    """Serve a stream of one shard without TLS."""
    async with fan_out_aws(environment, tmp_path) as aws:
        yield aws
