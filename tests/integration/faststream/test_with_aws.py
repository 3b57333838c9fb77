"""Test the broker with streams and a state store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kinesumer.faststream import KinesisBroker, TestKinesisBroker
from kinesumer.testing import EmbeddedAws
from tests.support.faststream_cases import BrokerCases


class TestWithAws(BrokerCases):
    @pytest.fixture(autouse=True)
    def _streams(self, kinesumer_aws: EmbeddedAws, nobody_else_joins: None) -> None:
        for name in self.streams:
            kinesumer_aws.create_stream(name, shards=1)

    def opened(self, broker: KinesisBroker) -> AbstractAsyncContextManager[Any]:
        return TestKinesisBroker(broker, with_real=True)
