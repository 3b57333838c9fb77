"""Test that the simulator's Kinesis, over its network, keeps the contract."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.trial.acceptance.check import Check
from kinesumer.testing.trial.acceptance.contract.consumers import CONSUMER_CHECKS
from kinesumer.testing.trial.acceptance.contract.shard_ends import END_CHECKS
from kinesumer.testing.trial.acceptance.contract.source import SOURCE_CHECKS
from kinesumer.testing.trial.acceptance.resources import Streams
from tests.integration.contract.streams import SimulatedStreams

EVERY_CHECK: list[Check[[Any, str]]] = [
    *SOURCE_CHECKS,
    *END_CHECKS,
    *CONSUMER_CHECKS,
]
# The simulator's pages are values, not bytes.
NOT_SIMULATED = "a page is sent as cbor if asked for"


@pytest.mark.parametrize(
    "check",
    [check for check in EVERY_CHECK if check.name != NOT_SIMULATED],
    ids=lambda check: check.name,
)
def test_the_simulated_kinesis_has_this_property(
    check: Check[[Streams, str]],
) -> None:
    async def run() -> None:
        await check.run(SimulatedStreams(loop), "orders")

    loop = VirtualLoop(Random(0))
    loop.run(run())
    assert not loop.failures
