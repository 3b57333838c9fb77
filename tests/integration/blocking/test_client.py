"""The client without asyncio: it takes and does what the other one does."""

from __future__ import annotations

import inspect
import itertools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer import Config, Kinesumer, Start
from kinesumer.blocking import Kinesumer as Blocking
from kinesumer.errors import ConfigurationError, StreamMissingError

if TYPE_CHECKING:
    from kinesumer import Record
    from kinesumer.local import EmbeddedAws

TABLE = "kinesumer-state-store"
QUICK: dict[str, Any] = {
    "heartbeat_interval_seconds": 0.3,
    "lease_duration_seconds": 1.5,
}
QUICK |= {"rebalance_delay_seconds": 0.1, "leader_interval_seconds": 0.1}
OLDEST = Start.TRIM_HORIZON


def client(**config: Any) -> Blocking:
    return Blocking("app", table=TABLE, config=Config(**QUICK, **config))


def taken(client: Blocking, count: int) -> list[bytes]:
    """Take some records, of which the last one stays in hand."""
    records = client.consume("orders", start=OLDEST)
    return [record.data for record in itertools.islice(records, count)]


def test_it_can_do_all_that_the_other_client_can_in_the_same_words() -> None:
    for name, method in inspect.getmembers(Kinesumer, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            same = inspect.signature(getattr(Blocking, name)).parameters
            assert same == inspect.signature(method).parameters, name


def test_what_cannot_work_is_refused_where_it_is_said() -> None:
    with pytest.raises(ConfigurationError, match="client_id"):
        Blocking("app", table="table", client_id="a#b")
    outside = Blocking("app", table="table", client_id="c1")
    assert (outside.app, outside.client_id) == ("app", "c1")
    for call in (
        lambda: outside.consume("orders"),
        outside.leave,
        outside.commit,
        lambda: outside.refresh("orders"),
    ):
        with pytest.raises(ConfigurationError, match="use the client in `with"):
            call()


def test_a_stream_that_is_not_there_is_said_when_a_record_is_asked_for(
    kinesumer_aws: EmbeddedAws,
) -> None:
    with client() as blocking:
        records = blocking.consume("missing", start=OLDEST)
        with pytest.raises(ConfigurationError, match="called before"):
            blocking.consume("other")
        with pytest.raises(StreamMissingError):
            next(records)
        kinesumer_aws.create_stream("missing", shards=1)
        kinesumer_aws.put("missing", b"a", "key")
        assert next(records).data == b"a"
        with pytest.raises(ConfigurationError, match="called before"):
            blocking.consume("other")


def test_the_next_client_goes_on_after_what_was_done(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    for number in range(5):
        kinesumer_aws.put("orders", b"%d" % number, "key")
    with client() as first:
        assert taken(first, 3) == [b"0", b"1", b"2"]
    with pytest.raises(KeyboardInterrupt), client(commit="manual") as second:
        records = second.consume("orders", start=OLDEST)
        in_hand = [next(records), next(records)]
        assert [record.data for record in in_hand] == [b"2", b"3"]
        second.ack(in_hand[0])
        second.commit()
        raise KeyboardInterrupt
    with client() as third:
        (batch,) = itertools.islice(third.consume("orders", start=OLDEST).batches(), 1)
        assert [record.data for record in batch.records] == [b"3", b"4"]


def test_handlers_run_until_the_client_leaves_and_pauses_are_kept(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"before", "key")
    seen: list[bytes] = []
    threads = set()

    def handle(record: Record) -> None:
        threads.add(threading.current_thread())
        seen.append(record.data)
        if record.data == b"before":
            blocking.pause("orders", reason="a trial")
            kinesumer_aws.put("orders", b"after", "key")
            blocking.resume("orders")
        else:
            blocking.leave()

    with client() as blocking:
        blocking.run("orders", handle, start=OLDEST, batch=False)
    assert seen == [b"before", b"after"]
    assert threading.main_thread() not in threads


def test_leaving_the_block_waits_for_the_record_that_another_thread_has(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    for number in range(3):
        kinesumer_aws.put("orders", b"%d" % number, "key")
    has_one, may_end = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def consume() -> None:
        for record in blocking.consume("orders", start=OLDEST):
            has_one.set()
            may_end.wait()
            seen.append(record.data)

    thread = threading.Thread(target=consume)
    with client() as blocking:
        thread.start()
        assert has_one.wait(30)
        threading.Timer(0.3, may_end.set).start()
    thread.join(30)
    assert seen == [b"0"]
    with client() as after:
        assert taken(after, 1) == [b"1"]


def test_what_ends_a_program_ends_run_and_hands_the_shards_over(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"0", "key")

    async def handle(_: Record) -> None:
        sys.exit(3)

    with pytest.raises(SystemExit, match="3"), client() as blocking:
        blocking.run("orders", handle, start=OLDEST, batch=False)
    assert "kinesumer-state-store" not in {t.name for t in threading.enumerate()}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_its_parents_client(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"0", "key")
    said, say = os.pipe()
    with client() as blocking:
        assert taken(blocking, 1) == [b"0"]
        if not (child := os.fork()):
            try:
                blocking.commit()
            except BaseException as error:
                os.write(say, repr(error).encode())
            os._exit(0)
        with open(said, "rb") as answer:
            os.close(say)
            assert b"forked from the one that opened the client" in answer.read()
        os.waitpid(child, 0)
        blocking.commit()
