"""An environment without AWS settings."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment say nothing about AWS."""
    for name in ("", "_KINESIS", "_DYNAMODB", "_STS"):
        monkeypatch.delenv(f"AWS_ENDPOINT_URL{name}", raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
