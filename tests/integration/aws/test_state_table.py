"""Test that the state store's table is created in Python as by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import kinesumer
import kinesumer.blocking
from kinesumer.errors import ConfigurationError
from kinesumer.testing import EmbeddedAws, background


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    with background(EmbeddedAws(table=None)) as embedded:
        for name, value in embedded.environment().items():
            monkeypatch.setenv(name, value)
        yield embedded


async def test_a_table_is_created_once_and_then_verified(
    aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINESUMER_TABLE", raising=False)
    made = await kinesumer.create_table()
    assert made.created
    assert (made.name, made.region) == ("kinesumer-state-store", "us-east-1")
    again = await kinesumer.create_table(region="us-east-1")
    assert again == made._replace(created=False)
    monkeypatch.setenv("KINESUMER_TABLE", "other")
    # It may also be called where an event loop runs, such as in a notebook.
    other = kinesumer.blocking.create_table()
    assert (other.name, other.created) == ("other", True)


async def test_a_table_is_protected_if_that_is_wanted(
    aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINESUMER_TABLE", raising=False)

    def protections() -> tuple[bool, bool]:
        body = json.dumps({"TableName": "kinesumer-state-store"}).encode()
        table: Any = aws.dynamodb("DescribeTable", body)["Table"]
        answer: Any = aws.dynamodb("DescribeContinuousBackups", body)
        backups = answer["ContinuousBackupsDescription"]
        recovery = backups["PointInTimeRecoveryDescription"]
        is_on = recovery["PointInTimeRecoveryStatus"] == "ENABLED"
        return is_on, bool(table.get("DeletionProtectionEnabled"))

    await kinesumer.create_table()
    assert protections() == (False, False)
    await kinesumer.create_table(deletion_protection=True)
    assert protections() == (False, True)
    for _ in range(2):
        await kinesumer.create_table(
            point_in_time_recovery=True, deletion_protection=True
        )
        assert protections() == (True, True)
    await kinesumer.create_table()  # changes nothing
    assert protections() == (True, True)


async def test_names_that_cannot_be_a_table_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="choose another"):
        await kinesumer.create_table("a#b")
