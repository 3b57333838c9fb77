"""Run tests without options from the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.spark_reading import Bench


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "_KINESIS", "_DYNAMODB", "_STS"):
        monkeypatch.delenv(f"AWS_ENDPOINT_URL{name}", raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert not asyncio.all_tasks(bench.loop)
    bench.loop.close()
