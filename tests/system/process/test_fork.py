"""Test a blocking client in a process that forks.

The test starts a separate process to fork. A fork of a pytest-xdist worker could wait
forever for a lock that another thread of the worker held.
"""

from __future__ import annotations

import os

import pytest

from kinesumer import Config, Start
from kinesumer.blocking import Kinesumer
from kinesumer.testing import EmbeddedAws


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_cannot_use_the_client_of_its_parent(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"0", "key")
    readable, writable = os.pipe()
    config = Config(heartbeat_interval_seconds=0.3, lease_duration_seconds=5.0)
    with Kinesumer("app", table="kinesumer-state-store", config=config) as client:
        records = client.consume("orders", start=Start.TRIM_HORIZON)
        assert next(iter(records)).data == b"0"
        if not (child := os.fork()):
            try:
                client.commit()
            except BaseException as error:
                os.write(writable, repr(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        answer = os.read(readable, 1000)
        assert b"forked from the one that opened the client" in answer
        client.commit()
