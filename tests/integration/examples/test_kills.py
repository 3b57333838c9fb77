"""Both sinks at work, while the processes that fill them are killed and frozen."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.integration.examples.crowd import Crowd, ended, is_stopped, until

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws
    from tests.integration.examples.sinks import DynamoDB, PostgreSQL, Sink


class Frozen(NamedTuple):
    """Where a process stops itself, and what it says when it goes on too late."""

    function: str
    says: str


BEFORE = Frozen("store", "is over")
IN_TRANSACTION = Frozen("write", "server closed the connection")


def play(aws: EmbeddedAws, stream: str, sink: Sink, frozen: list[Frozen]) -> None:
    """Kill one process and freeze others, let one more finish, then wake them up."""
    aws.create_stream(stream, shards=1 + len(frozen))
    produced: list[str] = []

    def produce(count: int) -> None:
        for number in range(len(produced), len(produced) + count):
            produced.append(f"{number:06d}")
            aws.put(stream, produced[-1].encode(), produced[-1])

    produce(200)
    with Crowd(sink.example, stream) as crowd:
        killed = crowd.start()
        stopping = {each: crowd.start(each.function, call=2) for each in frozen}
        until(lambda: sink.stored() != [], "something is stored")
        for process in stopping.values():
            while not is_stopped(process):
                produce(3)
                time.sleep(0.1)
        killed.send_signal(signal.SIGKILL)
        produce(200)
        heir = crowd.start()
        until(lambda: set(sink.stored()) == set(produced), "all is stored")
        for each, process in stopping.items():
            process.send_signal(signal.SIGCONT)
            assert each.says in ended(process)
        heir.terminate()
        assert heir.wait() == 0
    assert sink.stored() == produced


@pytest.mark.process
def test_each_record_is_there_once_whoever_is_killed_or_goes_on_too_late(
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
