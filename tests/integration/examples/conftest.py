"""The sinks of the recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.integration.examples import postgres
from tests.integration.examples.sinks import DynamoDB, PostgreSQL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.local import EmbeddedAws


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """PostgreSQL, for all tests."""
    with postgres.server() as environment:
        yield environment


@pytest.fixture
def postgresql(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgreSQL]:
    """The database that the environment names, with empty tables."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(autocommit=True) as connection:
        yield PostgreSQL(connection)


@pytest.fixture
def dynamodb(kinesumer_aws: EmbeddedAws) -> DynamoDB:
    """An embedded AWS's DynamoDB with the table of the output."""
    return DynamoDB(kinesumer_aws)
