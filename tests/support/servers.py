"""Run third-party servers as subprocesses on free ports of 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.clock import PATIENCE_SECONDS
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "integration" / "contract"
NODE_PACKAGE = HERE / "node_modules" / "kinesis-local"


@contextmanager
def kinesis_local() -> Iterator[str]:
    """Run kinesis-local (npm) and yield its endpoint. Skip the test if it can't run."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("kinesis-local: there is no Node on this machine")
    if not NODE_PACKAGE.exists():
        pytest.skip(
            "kinesis-local isn't installed: npm ci --prefix tests/integration/contract"
        )
    port, tls_port = free_port(), free_port()
    environment = {
        "KINESIS_MOCK_CERT_PATH": str(NODE_PACKAGE / "server.json"),
        "KINESIS_MOCK_PLAIN_PORT": str(port),
        "KINESIS_MOCK_TLS_PORT": str(tls_port),
        "SHARD_LIMIT": "5000",
        "CREATE_STREAM_DURATION": "50ms",
        "DELETE_STREAM_DURATION": "50ms",
        "SPLIT_SHARD_DURATION": "50ms",
        "MERGE_SHARDS_DURATION": "50ms",
        "LOG_LEVEL": "ERROR",
    }
    with _server([node, str(NODE_PACKAGE / "main.js")], environment, port) as url:
        yield url


@contextmanager
def ministack() -> Iterator[str]:
    """Run MiniStack (from PyPI, in a separate environment) and yield its endpoint."""
    program = ROOT / ".venv-ministack" / "bin" / "ministack"
    if not program.exists():
        pytest.skip("MiniStack isn't installed: scripts/test makes .venv-ministack")
    port = free_port()
    environment = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": "kinesis,dynamodb,dynamodbstreams,sts",
    }
    with _server([str(program)], environment, port) as url:
        yield url


@contextmanager
def _server(
    command: Sequence[str], environment: Mapping[str, str], port: int
) -> Iterator[str]:
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR")
        if name in os.environ
    }
    process = subprocess.Popen(
        command,
        env={**inherited, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _wait_for(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        # After terminate(), kinesis-local would wait for its open connections.
        process.kill()
        _, complaints = process.communicate()
        sys.stderr.write(complaints.decode(errors="replace"))


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} doesn't listen on port {port}")
