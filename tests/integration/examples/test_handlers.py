"""The consumer whose handler is called, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.examples.loading import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.local import EmbeddedAws

EXAMPLE = str(EXAMPLES / "handlers" / "consume.py")
PROGRAM = [sys.executable, EXAMPLE, "billing", "orders"]


@pytest.mark.process
def test_good_orders_are_paid_and_bad_ones_are_kept(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b'{"customer": "ann", "total": 7}', "ann")
    kinesumer_aws.put("orders", b"no JSON", "bob")
    kinesumer_aws.put("orders", b'{"customer": "cid"}', "cid")
    kinesumer_aws.put("orders", b'{"customer": "dan", "total": 9}', "dan")
    environment = {**os.environ, "DEAD_LETTERS": str(letters)}
    with subprocess.Popen(
        PROGRAM, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(6)]
        while not letters.exists() or len(letters.read_text().splitlines()) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert "ann pays 7" in said
    assert said.count("cid fails: KeyError('total')") == 3
    assert "dan pays 9" in said
    assert sum(text.startswith("bob fails: JSONDecodeError(") for text in said) == 1
    kept = [json.loads(line) for line in letters.read_text().splitlines()]
    assert {(k["partition_key"], k["attempts"]) for k in kept} == {
        ("bob", 1),
        ("cid", 3),
    }
