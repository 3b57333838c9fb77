"""Test that a process loads AWS's service definitions only once: they take 10 MB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from kinesumer.aws.session import ClientFactory

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("aws")]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the files that are read from now on."""
    files: list[str] = []
    load = JSONFileLoader.load_file

    def loading(self: JSONFileLoader, path: str) -> Any:
        found = load(self, path)
        if found is not None:
            files.append(path)
        return found

    monkeypatch.setattr(JSONFileLoader, "load_file", loading)
    return files


async def open_all() -> None:
    async with ClientFactory() as clients:
        for service in ("dynamodb", "kinesis"):
            await clients.open(service)


async def test_clients_that_follow_others_read_no_definitions(read: list[str]) -> None:
    await open_all()
    read.clear()
    await open_all()
    assert read == []


async def test_other_definitions_are_read_where_the_environment_says_so(
    read: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await open_all()
    read.clear()
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    await open_all()
    assert any("dynamodb" in path for path in read)
