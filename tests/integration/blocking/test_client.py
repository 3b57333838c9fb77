"""Test that the client without asyncio works like the asynchronous one."""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kinesumer import Config, Kinesumer, Record, RetryPolicy, Start, Stream
from kinesumer.blocking import Kinesumer as Blocking
from kinesumer.blocking import create_table
from kinesumer.errors import (
    ConfigurationError,
    HandlerFailedError,
    StreamMissingError,
    ThreadRefusedError,
)
from kinesumer.testing import EmbeddedAws

pytestmark = pytest.mark.usefixtures("nobody_else_joins")

TABLE = "kinesumer-state-store"
QUICK: dict[str, Any] = {
    "heartbeat_interval_seconds": 0.3,
    "lease_duration_seconds": 1.5,
}
QUICK |= {"rebalance_delay_seconds": 0.1, "leader_interval_seconds": 0.1}
OLDEST = Start.TRIM_HORIZON


def client(**config: Any) -> Blocking:
    return Blocking("app", table=TABLE, config=Config(**QUICK, **config))


def orders(aws: EmbeddedAws, *data: bytes, shards: int = 1) -> None:
    """Create the stream "orders" with records, each with a key of its own."""
    aws.create_stream("orders", shards=shards)
    for each in data:
        aws.put("orders", each, f"key {each.decode()}")


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def taken(client: Blocking, count: int) -> list[bytes]:
    """Take some records. The last one remains in progress."""
    records = client.consume("orders", start=OLDEST)
    return [record.data for record in itertools.islice(records, count)]


def test_it_can_do_all_that_the_other_client_can_in_the_same_words() -> None:
    for name, method in inspect.getmembers(Kinesumer, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            same = inspect.signature(getattr(Blocking, name)).parameters
            assert same == inspect.signature(method).parameters, name


def test_what_cannot_work_is_refused_where_it_is_said() -> None:
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


def test_it_tells_its_shards_positions_and_lag(kinesumer_aws: EmbeddedAws) -> None:
    orders(kinesumer_aws, b"a")
    with client() as blocking:
        assert blocking.assignment() == {}
        record = next(blocking.consume("orders", start=OLDEST))
        assert list(blocking.assignment()) == [record.fence.shard]
        assert list(blocking.positions()) == [record.fence.shard]
        assert blocking.lag()[record.fence.shard].records_in_hand == 1


def test_a_block_and_a_limit_end_with_their_records_done(
    kinesumer_aws: EmbeddedAws,
) -> None:
    orders(kinesumer_aws, *numbers(8))
    with client() as first, first.consume("orders", start=OLDEST) as records:
        assert next(records).data == b"0"
        records.close(ack=True)
        [done] = {each.done for each in first.positions().values()}
        record = next(records)
        [still] = {each.done for each in first.positions().values()}
        assert (record.data, done, still) == (b"1", done, done)
        assert done is not None
    with client() as second:
        limited = second.consume("orders", limit=2)
        assert [record.data for record in limited] == [b"2", b"3"]
        assert list(limited) == []
    with client() as third, third.consume("orders", limit=2).batches() as batches:
        batch = next(batches)
        assert [record.data for record in batch.records] == [b"4", b"5"]
    with client(commit="manual") as fourth:
        records = fourth.consume("orders")
        assert next(records).data == b"6"
        with pytest.raises(ConfigurationError, match=r"client\.ack\(\)"):
            records.close(ack=True)


@pytest.mark.parametrize("is_decoded", [False, True])
def test_reading_until_now_ends_by_itself_with_the_children_of_a_reshard(
    kinesumer_aws: EmbeddedAws, is_decoded: bool
) -> None:
    kinesumer_aws.create_stream("orders", shards=3)  # one of them stays empty
    first, *_ = kinesumer_aws.open_shards("orders")
    low, middle = 0, 1 << 127
    kinesumer_aws.put("orders", b"0", explicit_hash_key=low)
    kinesumer_aws.put("orders", b"1", explicit_hash_key=middle)
    kinesumer_aws.split("orders", first)
    kinesumer_aws.put("orders", b"2", explicit_hash_key=low)
    decode: Any = {"decode": int} if is_decoded else {}
    with client(commit_interval_seconds=0.2) as job:
        records = job.consume("orders", start=OLDEST, until="now", **decode)
        assert sorted(record.data for record in records) == [b"0", b"1", b"2"]
    kinesumer_aws.put("orders", b"3", explicit_hash_key=low)
    with client(commit_interval_seconds=0.2) as job:
        batches = job.consume("orders", until="now", **decode).batches()
        assert [record.data for batch in batches for record in batch.records] == [b"3"]
    handled: list[bytes] = []

    def handle(record: Record) -> None:
        handled.append(record.data)

    kinesumer_aws.put("orders", b"4", explicit_hash_key=middle)
    with client(commit_interval_seconds=0.2) as job:
        job.run("orders", handle, until="now")
    assert handled == [b"4"]


def test_clients_that_share_a_stream_read_until_a_time_and_end_together(
    kinesumer_aws: EmbeddedAws,
) -> None:
    orders(kinesumer_aws, *numbers(100), shards=4)
    time.sleep(0.01)
    until = datetime.now(UTC)
    time.sleep(0.01)
    kinesumer_aws.put("orders", b"too late", "key 1")
    # Its records are closed off before the time, and its children open after it.
    kinesumer_aws.split("orders", kinesumer_aws.open_shards("orders")[0])
    both = threading.Barrier(2)
    found: list[bytes] = []

    def work() -> None:
        both.wait()
        with client(commit_interval_seconds=0.2) as job:
            records = job.consume("orders", start=OLDEST, until=until)
            found.extend(record.data for record in records)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    # A hand-over may repeat records, but none is lost.
    assert set(found) == {*numbers(100)}


def test_a_client_reads_what_another_one_left_before_it_ends(
    kinesumer_aws: EmbeddedAws,
) -> None:
    orders(kinesumer_aws, *numbers(20), shards=2)
    until = datetime.now(UTC) + timedelta(seconds=1)
    holds, may_fail = threading.Event(), threading.Event()
    found: list[bytes] = []

    def fail() -> None:
        with suppress(ZeroDivisionError), client(commit_interval_seconds=0.2) as job:
            for _ in job.consume("orders", start=OLDEST, until=until):
                holds.set()
                may_fail.wait(60)
                raise ZeroDivisionError  # its record is not done

    def work() -> None:
        with client(commit_interval_seconds=0.2) as job:
            records = job.consume("orders", start=OLDEST, until=until)
            found.extend(record.data for record in records)

    failing, working = (threading.Thread(target=each) for each in (fail, work))
    failing.start()
    assert holds.wait(60)
    working.start()
    working.join(4)
    assert working.is_alive(), "it ended while another client had a record"
    may_fail.set()
    failing.join(60)
    working.join(60)
    assert not working.is_alive()
    assert set(found) == {*numbers(20)}


def test_ends_of_reading_that_cannot_be_are_refused(kinesumer_aws: EmbeddedAws) -> None:
    with client() as job:
        with pytest.raises(ConfigurationError, match="leave fan_out out"):
            job.consume(Stream("orders", fan_out="mine"), until="now")


def test_the_next_client_goes_on_after_what_was_done(
    kinesumer_aws: EmbeddedAws,
) -> None:
    orders(kinesumer_aws, *numbers(5))
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
    orders(kinesumer_aws, b"before")
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
    orders(kinesumer_aws, *numbers(3))
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


def test_a_handlers_error_or_exit_ends_run_and_hands_the_shards_over(
    kinesumer_aws: EmbeddedAws, caplog: pytest.LogCaptureFixture
) -> None:
    orders(kinesumer_aws, b"0")

    async def leaves(_: Record) -> None:
        sys.exit(3)

    def fails(_: Record) -> None:
        raise ValueError

    with pytest.raises(SystemExit, match="3"), client() as blocking:
        blocking.run("orders", leaves, start=OLDEST, batch=False)
    with pytest.raises(HandlerFailedError), client() as blocking:
        blocking.run("orders", fails, batch=False, retries=RetryPolicy(max_attempts=1))
    levels = [line.levelname for line in caplog.records if "handler" in line.message]
    assert levels == ["WARNING", "ERROR"]
    assert "kinesumer-state-store" not in {t.name for t in threading.enumerate()}


def test_a_refused_thread_is_an_error_and_the_client_can_be_entered_again(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders(kinesumer_aws, b"a")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    blocking = client()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ThreadRefusedError, match="can't start new thread"):
            blocking.__enter__()
        with pytest.raises(ThreadRefusedError, match="can't start new thread"):
            create_table()
    with blocking:
        assert taken(blocking, 1) == [b"a"]
