"""Test ``on_assigned`` and ``on_revoked`` of the client without asyncio."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from kinesumer import AssignedShard, Config, Record, Start
from kinesumer.blocking import Kinesumer
from kinesumer.testing import EmbeddedAws

QUICK: dict[str, Any] = {
    "heartbeat_interval_seconds": 0.3,
    "lease_duration_seconds": 1.5,
    "rebalance_delay_seconds": 0.1,
    "leader_interval_seconds": 0.1,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no other clients, and not long for late calls."""
    monkeypatch.setattr("kinesumer.coordination.leader.FIRST_PLAN_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("kinesumer.consuming.assignment_callbacks.LAST_SECONDS", 0.1)


def client(**config: Any) -> Kinesumer:
    table = "kinesumer-state-store"
    return Kinesumer("app", table=table, config=Config(**QUICK, **config))


@pytest.fixture
def orders(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    for data in (b"a", b"b"):
        kinesumer_aws.put("orders", data, "key")


class Calls:
    """Notes the calls and records in order, and their threads."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.threads: set[threading.Thread] = set()

    def on_assigned(self, shard: AssignedShard) -> None:
        self.seen.append(f"assigned {shard.fence.epoch}")
        self.threads.add(threading.current_thread())

    def on_revoked(self, shard: AssignedShard, reason: str) -> None:
        self.seen.append(f"revoked {shard.fence.epoch} {reason}")
        self.threads.add(threading.current_thread())

    def handle(self, record: Record) -> None:
        self.seen.append(record.data.decode())


def consume(blocking: Kinesumer, **callbacks: Any) -> Any:
    return blocking.consume("orders", start=Start.TRIM_HORIZON, **callbacks)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("refusals", [0, 3])
def test_calls_enclose_the_records_of_a_loop_in_threads_that_they_wait_for(
    monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    start, left = threading.Thread.start, [*range(refusals)]

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("kinesumer-callback") and left:
            left.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr("kinesumer.runtime.threads.RETRY_SECONDS", 0.01)
    calls = Calls()
    with client() as blocking:
        records = consume(
            blocking, on_assigned=calls.on_assigned, on_revoked=calls.on_revoked
        )
        with records:
            for record in itertools.islice(records, 2):
                calls.handle(record)
    assert not left
    assert calls.seen == ["assigned 1", "a", "b", "revoked 1 closed"]
    assert threading.main_thread() not in calls.threads


@pytest.mark.usefixtures("orders")
def test_an_error_of_on_assigned_is_raised_in_the_loop_before_any_record() -> None:
    def fail(_: AssignedShard) -> None:
        raise LookupError("no state")

    with client() as blocking, pytest.raises(LookupError, match="no state"):
        next(consume(blocking, on_assigned=fail))


@pytest.mark.usefixtures("orders")
def test_a_call_that_does_not_end_delays_the_end_only_for_a_time() -> None:
    began, may_end = threading.Event(), threading.Event()

    def wait(_shard: AssignedShard, _reason: str) -> None:
        began.set()
        may_end.wait()

    try:
        with client(drain_timeout_seconds=0.2) as blocking:
            assert next(consume(blocking, on_revoked=wait)).data == b"a"
        assert began.is_set()
    finally:
        may_end.set()
