"""Provide a server that answers like AWS, its environment, and virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.model.streams import Stream
from tests.support.aws_stub import (
    AwsStub,
    aws,
    clients,
    environment,
    shared_clients,
    stub,
)
from tests.support.subscriptions import FanOutAws, fan_out_aws
from tests.support.world import pytest_pycollect_makeitem, world

__all__ = [
    "aws",
    "clients",
    "environment",
    "pytest_pycollect_makeitem",
    "shared_clients",
    "stub",
    "world",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of the stub on a loop of their module, to which the stub is bound."""
    for item in items:
        if "stub" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


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
