"""Test what the acceptance check creates, with answers that are lost."""

from __future__ import annotations

import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.testing.trial.acceptance.resources import (
    StreamResources,
    TableResources,
)


@pytest.mark.usefixtures("kinesumer_aws")
async def test_a_creation_whose_answer_was_lost_is_repeated() -> None:
    async with ClientFactory(region="us-east-1") as clients:
        tables = await TableResources.open(clients)
        streams = await StreamResources.open(clients)
        for _ in range(2):
            await tables.create("kinesumer-acceptance-test-state", {"made": "once"})
            await streams.create(
                "kinesumer-acceptance-test-orders", 1, {"made": "once"}
            )
        assert await tables.names("kinesumer-acceptance-test-") == [
            "kinesumer-acceptance-test-state"
        ]
        assert await streams.names("kinesumer-acceptance-test-") == [
            "kinesumer-acceptance-test-orders"
        ]
