"""Test producers and clients that are open when the interpreter ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session

from kinesumer.blocking import Producer
from kinesumer.errors import ConfigurationError
from kinesumer.testing import EmbeddedAws

OPENED = """
from kinesumer.blocking import Producer

producer = Producer("orders", linger_seconds=60).__enter__()
for _ in range(10):
    producer.put(b"data", partition_key="key")
"""
GENERATOR = """
from kinesumer.blocking import Producer

def put_all():
    with Producer("orders", linger_seconds=60) as producer:
        while True:
            producer.put((yield), partition_key="key")

putting = put_all()
next(putting)
for _ in range(10):
    putting.send(b"data")
"""
CLIENT = """
from kinesumer.blocking import Kinesumer

client = Kinesumer("app").__enter__()
print(next(client.consume("orders", start="TRIM_HORIZON")).data)
"""
CLIENT_IN_GENERATOR = """
from kinesumer.blocking import Kinesumer

def data():
    with Kinesumer("app") as client:
        for record in client.consume("orders", start="TRIM_HORIZON"):
            yield record.data

found = data()
print(next(found))
"""
# Since Python 3.12, no thread can start any more when atexit calls functions.
NO_THREADS = """
import atexit
import threading

def no_thread(_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

@atexit.register
def shut_down():
    threading.Thread.start = no_thread
"""
PATIENCE_SECONDS = 120


def run(aws: EmbeddedAws, program: str) -> subprocess.CompletedProcess[str]:
    # The host is a name, so that a connection needs its addresses.
    url = aws.url.replace("127.0.0.1", "localhost")
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "AWS_ENDPOINT_URL": url},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def stored(aws: EmbeddedAws) -> int:
    """Return how many records the stream's only shard has."""
    kinesis = Session().create_client("kinesis", "us-east-1", endpoint_url=aws.url)
    place: dict[str, Any] = {"StreamName": "orders", "ShardId": "shardId-000000000000"}
    begin = kinesis.get_shard_iterator(**place, ShardIteratorType="TRIM_HORIZON")
    page = kinesis.get_records(ShardIterator=begin["ShardIterator"])
    return len(page["Records"])


@pytest.mark.parametrize("program", [OPENED, GENERATOR], ids=["opened", "generator"])
@pytest.mark.parametrize("end", ["", NO_THREADS], ids=["", "without threads"])
def test_a_producer_puts_what_waits_and_the_process_ends(
    kinesumer_aws: EmbeddedAws, program: str, end: str
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    done = run(kinesumer_aws, program + end)
    assert (done.returncode, done.stderr) == (0, "")
    assert stored(kinesumer_aws) == 10


def test_what_cannot_be_put_in_time_is_reported_and_the_process_fails(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.fault("refuse", operation="PutRecords")
    began = time.monotonic()
    file = tmp_path / "file"
    prologue = """
import atexit
import kinesumer.blocking.producer as module

module.ABORT_SECONDS = 1.0
atexit.register(print, "the first function that was registered")
"""
    epilogue = f"""
file = open({str(file)!r}, "w")
file.write("not flushed")
"""
    done = run(kinesumer_aws, prologue + OPENED + epilogue)
    assert done.returncode == 1
    assert "orders: the interpreter ends: 10 of the records weren't put" in done.stderr
    # Nothing else is skipped.
    assert done.stdout == "the first function that was registered\n"
    assert file.read_text() == "not flushed"
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


@pytest.mark.parametrize(
    "program", [CLIENT, CLIENT_IN_GENERATOR], ids=["opened", "generator"]
)
@pytest.mark.parametrize("end", ["", NO_THREADS], ids=["", "without threads"])
def test_a_client_gives_up_its_shards_and_the_process_ends(
    kinesumer_aws: EmbeddedAws, program: str, end: str
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"data", "key")
    done = run(kinesumer_aws, program + end)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'data'\n", "")
    status = [sys.executable, *"-m kinesumer.ops.cli status --app=app --json".split()]
    assert json.loads(subprocess.check_output(status))["members"] == []


def test_a_forked_process_ends_without_the_producer(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    fork = """
import os
import sys

pid = os.fork()
if not pid:
    sys.exit()
print(os.waitpid(pid, 0)[1])
"""
    done = run(kinesumer_aws, OPENED + fork)
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert stored(kinesumer_aws) == 10


def test_close_is_the_end_of_the_block(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    with Producer("orders", linger_seconds=60) as producer:
        future = producer.put(b"data", partition_key="key")
        producer.close()
        assert future.result().shard_id == "shardId-000000000000"
        assert producer.counts.records == 1
        with pytest.raises(ConfigurationError, match="with Producer"):
            producer.put(b"data", partition_key="key")
        producer.close()
    assert stored(kinesumer_aws) == 1
