"""``kinesumer dashboard`` as a process."""

from __future__ import annotations

import re
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.conftest import finished, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process

pytestmark = pytest.mark.process


def test_dashboard_serves_until_a_signal(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    aws.create_table()
    process = start("dashboard", "--app=a")
    (line,) = lines(process, 1)
    url = line.decode().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
    with urllib.request.urlopen(url) as answer:
        assert b"<title>kinesumer</title>" in answer.read()
    with urllib.request.urlopen(f"{url}states") as answer:
        assert answer.readline() == b"retry: 1000\n"
        answer.readline()
        assert answer.readline().startswith(b'data: {"version":1,"app":"a"')
        process.send_signal(signal.SIGINT)
        assert finished(process) == (b"", b"")
    assert process.returncode == 0


def test_the_link_has_a_token_if_changes_are_allowed(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    aws.create_table()
    (line,) = lines(start("dashboard", "--app=a", "--allow-changes"), 1)
    assert re.fullmatch(rb"http://127\.0\.0\.1:\d+/#token=[\w-]{43}\n", line)


def test_a_port_in_use_is_wrong_use(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    aws.create_table()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("dashboard", "--app=a", f"--port={taken.getsockname()[1]}")
        _, errors = finished(process)
    assert process.returncode == 2
    assert b"give another --port" in errors
