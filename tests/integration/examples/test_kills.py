"""Test that both sinks stay correct while processes are killed or stopped."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from kinesumer.testing import EmbeddedAws
from tests.integration.examples.conftest import DynamoDB, PostgreSQL, Sink
from tests.support.clock import wait_until
from tests.support.crowd import Crowd, ended, is_stopped


class Frozen(NamedTuple):
    """The call at which a process freezes, and its error when it is resumed late."""

    function: str
    says: str


BEFORE = Frozen("store", "is over")
IN_TRANSACTION = Frozen("write", "server closed the connection")


def play(aws: EmbeddedAws, stream: str, sink: Sink, frozen: list[Frozen]) -> None:
    """Kill one process, freeze others, let another one finish, and then resume all."""
    aws.create_stream(stream, shards=1 + len(frozen))
    produced: list[str] = []

    def produce(count: int) -> None:
        for number in range(len(produced), len(produced) + count):
            produced.append(f"{number:06d}")
            aws.put(stream, produced[-1].encode(), produced[-1])

    produce(60)
    with Crowd(sink.example, stream) as crowd:
        killed = crowd.start()
        stopping = {each: crowd.start(each.function, call=2) for each in frozen}
        wait_until(lambda: sink.stored() != [], "something is stored")
        for process in stopping.values():
            while not is_stopped(process):
                produce(3)
                time.sleep(0.1)
        killed.send_signal(signal.SIGKILL)
        produce(60)
        heir = crowd.start()
        wait_until(lambda: set(sink.stored()) == set(produced), "all is stored")
        for each, process in stopping.items():
            process.send_signal(signal.SIGCONT)
            assert each.says in ended(process, returncode=1)
        heir.terminate()
        ended(heir, returncode=0)
    assert sink.stored() == produced


@pytest.mark.process
def test_each_record_is_stored_once_if_processes_are_killed_or_resume_too_late(
    postgresql: PostgreSQL, dynamodb: DynamoDB, kinesumer_aws: EmbeddedAws
) -> None:
    with ThreadPoolExecutor(2) as pool:
        for played in [
            pool.submit(
                play, kinesumer_aws, "one", postgresql, [IN_TRANSACTION, BEFORE]
            ),
            pool.submit(play, kinesumer_aws, "two", dynamodb, [BEFORE]),
        ]:
            played.result()
