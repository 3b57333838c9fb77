"""Test that every backend has the properties of a stream that we rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.testing.trial.acceptance.contract.shard_ends import END_CHECKS
from kinesumer.testing.trial.acceptance.contract.source import SOURCE_CHECKS
from tests.integration.contract.conftest import passes

if TYPE_CHECKING:
    from kinesumer.testing.trial.acceptance.check import Check
    from kinesumer.testing.trial.acceptance.contract.streams import Streams

# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

PART = "source"


@pytest.mark.parametrize(
    "check", [*SOURCE_CHECKS, *END_CHECKS], ids=lambda check: check.name
)
async def test_a_stream_has_this_property(
    check: Check[[Streams, str]], streams: Streams, name: str
) -> None:
    await passes(check.run(streams, name))
