"""Test the health check by which ``docker compose up --wait`` awaits LocalStack."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kinesumer.testing import EmbeddedAws

COMPOSE = Path(__file__).parents[3] / "docker-compose.yml"

pytestmark = pytest.mark.skipif(
    shutil.which("curl") is None, reason="there is no curl here, which LocalStack has"
)


def localstack() -> Any:
    """Return the service of the compose file."""
    return yaml.safe_load(COMPOSE.read_text())["services"]["localstack"]


def is_healthy(url: str) -> bool:
    """Run the health check, which asks the server at this URL."""
    kind, script = localstack()["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    # Compose replaces the first of each two dollar signs.
    script = script.replace("$$", "$").replace("http://127.0.0.1:4566/", url)
    command = ["/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "down", [(), ("kinesis",), ("dynamodb",), ("kinesis", "dynamodb")]
)
def test_it_is_healthy_once_both_services_answer(
    kinesumer_aws: EmbeddedAws, down: tuple[str, ...]
) -> None:
    for service in down:
        kinesumer_aws.fault("error", service=service)
    assert is_healthy(kinesumer_aws.url) is not bool(down)


def test_the_image_is_pinned_and_loads_its_services_at_the_start() -> None:
    service = localstack()
    version = service["image"].rpartition(":")[2]
    assert version.count(".") == 2
    assert service["environment"]["EAGER_SERVICE_LOADING"] == "1"
    assert {"kinesis", "dynamodb", "sts"} <= {
        *service["environment"]["SERVICES"].split(",")
    }
