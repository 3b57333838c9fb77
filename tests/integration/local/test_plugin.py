"""The pytest plugin: a user's test needs no configuration."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

USERS_TEST = """
import asyncio
import os

from aiobotocore.session import get_session

async def shards():
    async with get_session().create_client("kinesis") as client:
        return len((await client.list_shards(StreamName="orders"))["Shards"])

async def tables():
    async with get_session().create_client("dynamodb") as client:
        return (await client.list_tables())["TableNames"]

def test_streams_and_state_store(kinesumer_aws):
    kinesumer_aws.create_stream("orders", shards=2)
    kinesumer_aws.put("orders", b"data", "key")
    assert asyncio.run(shards()) == 2
    assert asyncio.run(tables()) == ["kinesumer-state-store"]

def test_each_test_has_its_own(kinesumer_aws):
    kinesumer_aws.create_stream("orders", shards=1)
    assert asyncio.run(shards()) == 1

def test_the_environment_is_as_before():
    assert os.environ["AWS_PROFILE"] == "production"
    assert "AWS_ENDPOINT_URL" not in os.environ
"""


def test_a_users_test_gets_an_embedded_aws(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": "", "AWS_PROFILE": "production"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
