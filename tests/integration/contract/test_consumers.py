"""Test that every server has the properties of fan-out that we rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.testing.trial.acceptance.contract.consumers import CONSUMER_CHECKS
from kinesumer.testing.trial.acceptance.contract.streams import AwsStreams
from tests.integration.contract.conftest import passes

if TYPE_CHECKING:
    from kinesumer.testing.trial.acceptance.check import Check
    from kinesumer.testing.trial.acceptance.contract.streams import (
        FanOutStreams,
        Streams,
    )

# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

PART = "consumers"


@pytest.mark.parametrize("check", CONSUMER_CHECKS, ids=lambda check: check.name)
async def test_stream_consumers_have_this_property(
    check: Check[[FanOutStreams, str]], streams: Streams, name: str
) -> None:
    assert isinstance(streams, AwsStreams)
    await passes(check.run(streams, name))
