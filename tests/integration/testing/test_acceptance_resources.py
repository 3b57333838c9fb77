"""Test what the acceptance check creates, with answers that are lost."""

from __future__ import annotations

import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.testing.trial.acceptance.resources import Streams, TableResources

PREFIX = "kinesumer-acceptance-test-"


@pytest.mark.usefixtures("kinesumer_aws")
async def test_a_creation_whose_answer_was_lost_is_repeated() -> None:
    tags = {"made": "once"}
    async with ClientFactory(region="us-east-1") as clients:
        tables = await TableResources.open(clients)
        streams = await Streams.open(clients, tags)
        for _ in range(2):
            await tables.create(f"{PREFIX}state", tags)
            await streams.create(f"{PREFIX}orders")
        assert await tables.names(PREFIX) == [f"{PREFIX}state"]
        assert await streams.names(PREFIX) == [f"{PREFIX}orders"]
