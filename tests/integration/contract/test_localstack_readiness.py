"""Test the health check by which ``docker compose up --wait`` awaits LocalStack."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kinesumer.testing import EmbeddedAws

COMPOSE = Path(__file__).parents[3] / "docker-compose.yml"
KINESIS, DYNAMODB = "Kinesis_20131202.ListStreams", "DynamoDB_20120810.ListTables"

pytestmark = pytest.mark.skipif(
    shutil.which("curl") is None, reason="there is no curl here, which LocalStack has"
)


def localstack() -> Any:
    """Return the service of the compose file."""
    return yaml.safe_load(COMPOSE.read_text())["services"]["localstack"]


def is_healthy(kinesis: str, dynamodb: str | None = None) -> bool:
    """Run the health check, which asks the servers at these URLs."""
    kind, script = localstack()["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    urls = f"kinesis) echo {kinesis};; *) echo {dynamodb or kinesis};;"
    # Compose replaces the first of each two dollar signs.
    script = script.replace("$$", "$")
    script = script.replace("http://127.0.0.1:4566/", f'"$(case $1 in {urls} esac)"')
    command = ["/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def gateway(*loaded: str) -> Iterator[str]:
    """Serve a gateway whose services answer only these operations."""

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200 if self.headers["X-Amz-Target"] in loaded else 503)

        def _answer(self, status: int) -> None:
            body = json.dumps({"services": {"kinesis": "available"}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_it_is_healthy_when_kinesis_and_dynamodb_answer(
    kinesumer_aws: EmbeddedAws,
) -> None:
    urls = kinesumer_aws.environment()
    assert is_healthy(urls["AWS_ENDPOINT_URL"])


@pytest.mark.parametrize("loaded", [(), (KINESIS,), (DYNAMODB,)])
def test_it_is_not_healthy_while_only_the_gateway_or_one_service_answers(
    loaded: tuple[str, ...],
) -> None:
    with gateway(*loaded) as url:
        assert not is_healthy(url)


def test_it_is_healthy_once_both_services_are_loaded() -> None:
    with gateway(KINESIS, DYNAMODB) as url:
        assert is_healthy(url)


def test_the_image_is_pinned_and_loads_its_services_at_the_start() -> None:
    service = localstack()
    version = service["image"].rpartition(":")[2]
    assert version.count(".") == 2
    assert service["environment"]["EAGER_SERVICE_LOADING"] == "1"
    assert {"kinesis", "dynamodb", "sts"} <= {
        *service["environment"]["SERVICES"].split(",")
    }
