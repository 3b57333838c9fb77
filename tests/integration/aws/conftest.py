"""An AWS that does as it is told, and an environment that points to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kinesumer.aws.session import ClientFactory
from tests.integration.aws.stub import AwsStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing of this machine's AWS configuration, and no look for an instance's."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
async def aws(environment: pytest.MonkeyPatch) -> AsyncIterator[AwsStub]:
    """An AWS without answers yet; credentials, region and endpoint are set."""
    stub = AwsStub()
    await stub.start()
    environment.setenv("AWS_ENDPOINT_URL", stub.url)
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    yield stub
    await stub.stop()


@pytest.fixture
async def clients(aws: AwsStub) -> AsyncIterator[ClientFactory]:
    """Clients of an own session."""
    async with ClientFactory(role_session_name="kinesumer-billing/pod 1") as clients:
        yield clients
