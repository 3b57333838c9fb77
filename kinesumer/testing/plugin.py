"""The pytest plugin: an embedded AWS for tests of consumers, without configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.testing.embedded_aws.server import EmbeddedAws


@pytest.fixture
def kinesumer_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """Kinesis, DynamoDB and STS on 127.0.0.1, with an empty state store.

    The environment variables of AWS's SDKs point to it while the test runs, whatever
    they were before. ``kinesumer_aws.create_stream("orders", shards=2)`` and
    ``kinesumer_aws.put("orders", b"data", "key")`` create a stream and put a record.
    DynamoDB includes the streams of its tables.
    """
    from kinesumer.testing.embedded_aws.server import EmbeddedAws, background

    with background(EmbeddedAws()) as aws:
        # With a profile or a configuration file of this machine, a test could use a
        # real account.
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        # The fixture creates the table that a client uses without this variable.
        monkeypatch.delenv("KINESUMER_TABLE", raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, os.devnull)
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        yield aws
