"""Serve the streams of the snippets, and let them begin at the oldest record."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from kinesumer import Kinesumer, Start
from kinesumer.testing import EmbeddedAws


@pytest.fixture
def aws(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedAws:
    """Create a stream "orders" with records of three keys. Enter a new folder."""
    monkeypatch.chdir(tmp_path)
    kinesumer_aws.create_stream("orders", shards=2)
    for number in range(3):
        kinesumer_aws.put("orders", b'{"total": %d}' % number, f"key {number}")
    return kinesumer_aws


@pytest.fixture(autouse=True)
def from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let snippets that pass no start begin at the oldest record."""
    for name in ("consume", "run"):
        call = inspect.unwrap(getattr(Kinesumer, name))
        defaults = {**call.__kwdefaults__, "start": Start.TRIM_HORIZON}
        monkeypatch.setattr(call, "__kwdefaults__", defaults)
