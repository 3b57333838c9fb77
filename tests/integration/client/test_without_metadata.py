"""Test programs without metadata of packages, such as zipapps and frozen programs."""

from __future__ import annotations

import subprocess
import sys

from kinesumer.testing import EmbeddedAws

HIDE = """
import importlib.metadata

def hidden(name):
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.Distribution.from_name = hidden
importlib.metadata.distributions = lambda **_: iter(())
"""
PROGRAM = """
from kinesumer import Config
from kinesumer.blocking import Kinesumer, Producer

with Producer("orders") as producer:
    producer.put(b"one", partition_key="key").result()
with Kinesumer("app", config=Config(heartbeat_interval_seconds=0.3)) as client:
    print(next(client.consume("orders", start="TRIM_HORIZON")).data)
"""
COMMAND = """
from kinesumer.ops.cli.main import cli

cli(["--version"], prog_name="kinesumer")
"""


def output(program: str) -> str:
    return subprocess.check_output([sys.executable, "-c", HIDE + program], text=True)


def test_a_program_consumes_and_puts(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    assert output(PROGRAM) == "b'one'\n"


def test_the_command_does_not_know_its_version() -> None:
    assert output(COMMAND) == "kinesumer, version unknown\n"
