"""The consumer without asyncio, as a process that is asked to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.examples.loading import EXAMPLES

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws

EXAMPLE = str(EXAMPLES / "blocking" / "consume.py")
PROGRAM = [sys.executable, EXAMPLE, "billing", "orders"]


@pytest.mark.process
def test_sigterm_ends_the_loop(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    kinesumer_aws.put("orders", b"one", "key")
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[-1] == "one"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""
    assert process.returncode == 0
