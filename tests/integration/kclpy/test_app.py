"""Test record processors of amazon_kclpy with an embedded AWS, in real time."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinesumer.core.backoff import Backoff
from kinesumer.errors import ConfigurationError
from kinesumer.kclpy import (
    Checkpointer,
    CheckpointError,
    ProcessorApp,
    RecordProcessorBase,
    RecordProcessorBaseV1,
    ShardNotEndedError,
)
from kinesumer.ops.history.check import check_directories
from kinesumer.testing import EmbeddedAws
from tests.support.aggregates import User, frame, message
from tests.support.clock import until

PROPERTIES = """
applicationName = app
streamName = orders
initialPositionInStream = TRIM_HORIZON
executableName = app.py
failoverTimeMillis = 3000
kinesumer.leader_interval_seconds = 0.1
kinesumer.rebalance_delay_seconds = 0.1
# Nothing is stored but what processors checkpoint.
kinesumer.commit_interval_seconds = 0.1
"""
FIRST = "shardId-000000000000"
END_WAITS = "kinesumer.kclpy.shard_processor.END_BACKOFF"


@pytest.fixture(autouse=True)
def quick(nobody_else_joins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no other clients, and not long between calls at a shard's end."""
    monkeypatch.setattr(END_WAITS, Backoff(0.01, 0.01))


@pytest.fixture
def aws(kinesumer_aws: EmbeddedAws) -> EmbeddedAws:
    """Return an AWS with a stream of one shard."""
    kinesumer_aws.create_stream("orders", 1)
    return kinesumer_aws


class Fleet:
    """What the processors of some clients see, in the order of the calls."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "app.properties"
        self.seen: list[str] = []
        self.threads: dict[str, set[int]] = {}
        self.on_records: Callable[[Any], object] = bool
        self.on_end: Callable[[Checkpointer], object] = Checkpointer.checkpoint
        self.on_request: Callable[[Checkpointer], object] = Checkpointer.checkpoint
        self.version = 3

    def app(self, client: str = "", **properties: float) -> ProcessorApp:
        """Return an app whose processors write into ``seen`` after the client's name.

        ``properties`` are fields of Config.
        """
        own = [f"kinesumer.{name} = {value}\n" for name, value in properties.items()]
        self.path.write_text(PROPERTIES + "".join(own))
        if self.version == 1:
            return ProcessorApp(lambda: OldNoting(self, client), self.path)
        return ProcessorApp(lambda: Noting(self, client), self.path)

    def note(self, shard: str, client: str, text: str) -> None:
        self.seen.append(f"{client}{shard[-1]} {text}")
        self.threads.setdefault(shard, set()).add(threading.get_ident())

    async def saw(self, text: str) -> None:
        await until(lambda: text in self.seen)


class Noting(RecordProcessorBase):
    """Writes all calls into the fleet's list."""

    def __init__(self, fleet: Fleet, client: str) -> None:
        self.fleet, self.client, self.shard = fleet, client, ""

    def note(self, text: str) -> None:
        self.fleet.note(self.shard, self.client, text)

    def initialize(self, initialize_input: Any) -> None:
        self.shard = initialize_input.shard_id
        number = initialize_input.sequence_number[-2:]
        self.note(f"begins {number}/{initialize_input.sub_sequence_number}")

    def process_records(self, process_records_input: Any) -> None:
        assert process_records_input.millis_behind_latest >= 0
        for record in process_records_input.records:
            self.note(record.binary_data.decode())
        self.fleet.on_records(process_records_input)

    def lease_lost(self, lease_lost_input: Any) -> None:
        self.note("lost")

    def shard_ended(self, shard_ended_input: Any) -> None:
        self.note("ended")
        self.fleet.on_end(shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        self.note("requested")
        self.fleet.on_request(shutdown_requested_input.checkpointer)


class OldNoting(RecordProcessorBaseV1):
    """A processor of version 1 that writes all calls into the fleet's list."""

    def __init__(self, fleet: Fleet, client: str) -> None:
        self.fleet, self.client, self.shard = fleet, client, ""

    def note(self, text: str) -> None:
        self.fleet.note(self.shard, self.client, text)

    def initialize(self, shard_id: str) -> None:
        self.shard = shard_id
        self.note("begins")

    def process_records(self, records: Any, checkpointer: Checkpointer) -> None:
        for record in records:
            self.note(f"{record.get('partitionKey')} {record['data']}")
        checkpointer.checkpoint()

    def shutdown(self, checkpointer: Checkpointer, reason: str) -> None:
        self.note(reason)
        if reason == "TERMINATE":
            checkpointer.checkpoint()


@pytest.fixture
def fleet(aws: EmbeddedAws, tmp_path: Path) -> Fleet:
    """Return a fleet that has no clients yet."""
    return Fleet(tmp_path)


class Running:
    """A client that runs an app."""

    def __init__(self, app: ProcessorApp, name: str = "c1") -> None:
        self.client = app.client(client_id=name)
        self.task = asyncio.create_task(self._run(app))

    async def _run(self, app: ProcessorApp) -> None:
        async with self.client:
            await app.run(self.client)

    async def leave(self) -> None:
        """Leave the group, and wait for the end."""
        await self.client.leave()
        await self.task


async def run_until(fleet: Fleet, text: str, **properties: float) -> None:
    """Run a client until one of its processors sees a text."""
    before = len(fleet.seen)
    running = Running(fleet.app("", **properties))
    await until(lambda: text in fleet.seen[before:])
    await running.leave()


def put_aggregate(aws: EmbeddedAws, *texts: str) -> None:
    aws.put("orders", frame(message([User("k", None, t.encode()) for t in texts])))


# --- records and checkpoints ----------------------------------------------------------


async def test_each_shard_has_a_processor_and_a_thread(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", 2)
    fleet = Fleet(tmp_path)
    for number in range(6):
        kinesumer_aws.put(
            "orders", b"%d" % number, explicit_hash_key=(number % 2) << 127
        )
    running = Running(fleet.app())
    await fleet.saw("0 4")
    await fleet.saw("1 5")
    await running.leave()
    for shard in "01":
        calls = [text[2:] for text in fleet.seen if text[0] == shard]
        numbers = [str(number) for number in range(int(shard), 6, 2)]
        assert calls == ["begins ON/0", *numbers, "requested", "lost"]
    [one], [two] = fleet.threads.values()
    assert one != two


async def test_only_checkpoints_of_the_processor_are_stored(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    fleet.on_request = bool
    _, first = aws.put("orders", b"a")
    _, second = aws.put("orders", b"b")
    await run_until(fleet, "0 b")
    await run_until(fleet, "0 b")
    assert fleet.seen[:5] == ["0 begins ON/0", "0 a", "0 b", "0 requested", "0 lost"]
    assert fleet.seen[5:] == fleet.seen[:5]
    fleet.seen.clear()

    fleet.on_records = lambda given: given.checkpointer.checkpoint(first)
    await run_until(fleet, "0 b")
    fleet.on_records = lambda given: given.checkpointer.checkpoint()
    await run_until(fleet, "0 b")
    aws.put("orders", b"c")
    await run_until(fleet, "0 c")
    begins = [text for text in fleet.seen if "begins" in text]
    assert begins == ["0 begins ON/0", f"0 begins {first[-2:]}/0", begins[2]]
    assert begins[2] == f"0 begins {second[-2:]}/0"
    assert fleet.seen.count("0 a") == 1
    assert fleet.seen.count("0 b") == 2


async def test_a_checkpoint_may_be_within_an_aggregate(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    fleet.on_request = bool
    put_aggregate(aws, "a", "b", "c", "d")

    def checkpoint_second(given: Any) -> None:
        record = given.records[1]
        assert (record.sub_sequence_number, record.partition_key) == (1, "k")
        given.checkpointer.checkpoint(record.sequence_number, 1)

    fleet.on_records = checkpoint_second
    await run_until(fleet, "0 d")
    fleet.on_records = lambda given: given.checkpointer.checkpoint(
        given.records[0].sequence_number, given.records[0].sub_sequence_number
    )
    await run_until(fleet, "0 d")
    await run_until(fleet, "0 d")
    given = [text[2:] for text in fleet.seen if len(text) == 3]
    assert given == [*"abcd", *"cd", "d"]


async def test_an_error_of_a_processor_is_logged_and_passed_over(
    aws: EmbeddedAws, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(given: Any) -> None:
        if given.records[-1].binary_data == b"bad":
            raise ValueError("the processor's own")
        given.checkpointer.checkpoint()

    fleet.on_records = fail
    aws.put("orders", b"bad")
    running = Running(fleet.app())
    await fleet.saw("0 bad")
    aws.put("orders", b"good")
    await fleet.saw("0 good")
    await running.leave()
    [failed] = [line for line in caplog.records if "failed at" in line.message]
    assert "processor failed at processRecords, and goes on" in failed.message
    assert failed.exc_info is not None


async def test_the_end_of_a_process_ends_the_client(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    def leave(_: Any) -> None:
        raise SystemExit(3)

    fleet.on_records = leave
    aws.put("orders", b"a")
    app = fleet.app()
    with pytest.raises(SystemExit) as found:
        async with app.client() as client:
            await app.run(client)
    assert found.value.code == 3
    assert fleet.seen[-2:] == ["0 requested", "0 lost"]


async def test_an_error_of_the_constructor_ends_the_client(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    fleet.path.write_text(PROPERTIES)
    app = ProcessorApp(object, fleet.path)
    with pytest.raises(ConfigurationError, match="object is no record processor"):
        await Running(app).task


async def test_checkpoints_fail_while_the_state_store_throttles(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    failed: list[str] = []

    def checkpoint(given: Any) -> None:
        fault = aws.fault("throttle", service="dynamodb", operation="UpdateItem")
        try:
            given.checkpointer.checkpoint()
        except CheckpointError as error:
            failed.append(error.value)
        aws.clear_faults(fault)
        while True:  # as user code repeats it, with waits
            try:
                given.checkpointer.checkpoint()
            except CheckpointError as error:
                assert error.value == "ThrottlingException"
                time.sleep(0.1)
            else:
                return

    fleet.on_records = checkpoint
    aws.put("orders", b"a")
    await run_until(fleet, "0 a")
    aws.put("orders", b"b")
    await run_until(fleet, "0 b")
    assert failed[0] == "ThrottlingException"
    assert fleet.seen.count("0 a") == 1


async def test_a_processor_that_makes_no_checkpoints_is_warned_of(
    aws: EmbeddedAws, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        aws.put("orders", b"%d" % number)
    await run_until(fleet, "0 5", max_uncommitted_records=10)
    lines = [line.message for line in caplog.records]
    text = r"got \d+ records since its last checkpoint, and .* not read beyond 10: let"
    assert any(re.search(text, line) for line in lines)


async def test_histories_know_what_is_checkpointed(
    aws: EmbeddedAws,
    fleet: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KINESUMER_HISTORY", str(tmp_path / "histories"))
    for number in range(4):
        aws.put("orders", b"%d" % number)
    # Within the call, so the records are not handled yet when they are checkpointed.
    fleet.on_records = lambda given: given.checkpointer.checkpoint(
        given.records[-1].sequence_number
    )
    await run_until(fleet, "0 3")
    verdict = check_directories([tmp_path / "histories"])
    assert {rule: faults for rule, faults in verdict.faults.items() if faults} == {}


# --- shards that end, and shards that move --------------------------------------------


async def test_the_children_of_a_shard_begin_after_its_end_is_checkpointed(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    fails = [CheckpointError("ThrottlingException"), ValueError()]

    def end(checkpointer: Checkpointer) -> None:
        if fails:
            raise fails.pop()
        checkpointer.checkpoint()

    fleet.on_end = end
    aws.put("orders", b"a")
    running = Running(fleet.app())
    await fleet.saw("0 a")
    aws.split("orders", FIRST)
    aws.put("orders", b"b", explicit_hash_key=0)
    aws.put("orders", b"c", explicit_hash_key=1 << 127)
    await fleet.saw("1 b")
    await fleet.saw("2 c")
    [first, second] = aws.open_shards("orders")
    aws.merge("orders", first, second)
    aws.put("orders", b"d")
    await fleet.saw("3 d")
    await running.leave()
    begun = ["0 begins ON/0", "0 a", "0 ended", "0 ended", "0 ended"]
    assert fleet.seen[:5] == begun
    merged = fleet.seen.index("3 begins ON/0")
    assert {"1 b", "1 ended", "2 c", "2 ended"} < set(fleet.seen[:merged])


async def test_a_shard_whose_end_is_not_checkpointed_ends_the_client(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    fleet.on_end = bool
    aws.put("orders", b"a")
    running = Running(fleet.app())
    await fleet.saw("0 a")
    aws.split("orders", FIRST)
    with pytest.raises(ShardNotEndedError, match="made no checkpoint in 5 calls"):
        await running.task
    assert fleet.seen == ["0 begins ON/0", "0 a", *["0 ended"] * 5]
    fleet.on_end = Checkpointer.checkpoint
    aws.put("orders", b"b")
    fleet.seen.clear()
    await run_until(fleet, "1 b")
    assert fleet.seen[:3] == ["0 begins ON/0", "0 a", "0 ended"]


async def test_version_1_is_told_of_both_ends(aws: EmbeddedAws, fleet: Fleet) -> None:
    fleet.version = 1
    aws.put("orders", b"a")
    running = Running(fleet.app())
    await fleet.saw("0 key YQ==")
    aws.split("orders", FIRST)
    await fleet.saw("1 begins")
    await fleet.saw("2 begins")
    await running.leave()
    assert fleet.seen[:3] == ["0 begins", "0 key YQ==", "0 TERMINATE"]
    assert sorted(fleet.seen[-2:]) == ["1 ZOMBIE", "2 ZOMBIE"]


async def test_a_shard_moves_after_the_checkpoint_of_the_requested_shutdown(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    """Of two shards, the second client to come gets one."""
    kinesumer_aws.create_stream("orders", 2)
    fleet = Fleet(tmp_path)
    last = {}
    for text in (b"a", b"b"):
        for hash_key in (0, 1 << 127):
            shard, number = kinesumer_aws.put(
                "orders", text, explicit_hash_key=hash_key
            )
            last[shard[-1]] = number[-2:]

    def checkpoint(checkpointer: Checkpointer) -> None:
        time.sleep(0.5)
        checkpointer.checkpoint()

    fleet.on_request = checkpoint
    old = Running(fleet.app("old"), "c1")
    await fleet.saw("old0 b")
    await fleet.saw("old1 b")
    new = Running(fleet.app("new"), "c2")
    await until(lambda: any("new" in text for text in fleet.seen))
    moved = fleet.seen[-1][3]
    kinesumer_aws.put("orders", b"c", explicit_hash_key=int(moved) << 127)
    await fleet.saw(f"new{moved} c")
    await old.leave()
    await new.leave()
    calls = [text for text in fleet.seen if text[3] == moved]
    assert calls[:5] == [
        f"old{moved} {call}" for call in ("begins ON/0", "a", "b", "requested", "lost")
    ]
    begun = f"new{moved} begins {last[moved]}/0"
    assert calls[5:] == [
        begun,
        *(f"new{moved} {c}" for c in ("c", "requested", "lost")),
    ]


async def test_a_move_does_not_wait_for_records_without_a_checkpoint(
    aws: EmbeddedAws, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.on_request = bool
    aws.put("orders", b"a")
    old = Running(fleet.app("old", drain_timeout_seconds=200), "c1")
    await fleet.saw("old0 a")
    new = Running(fleet.app("new"), "c2")
    await asyncio.wait_for(old.leave(), 100)
    await fleet.saw("new0 a")
    await new.leave()
    assert "didn't finish within" not in caplog.text


async def test_a_shutdown_that_takes_too_long_is_not_waited_for(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    over, errors = threading.Event(), list[str]()

    def hang(checkpointer: Checkpointer) -> None:
        over.wait(60)
        try:
            checkpointer.checkpoint()
        except CheckpointError as error:
            errors.append(error.value)

    aws.put("orders", b"a")
    old = Running(fleet.app("old", drain_timeout_seconds=0.5), "c1")
    await fleet.saw("old0 a")
    fleet.on_request = hang
    leaving = asyncio.create_task(old.leave())
    await fleet.saw("old0 requested")
    await leaving
    fleet.on_request = bool
    new = Running(fleet.app("new"), "c2")
    await fleet.saw("new0 a")
    over.set()
    await until(lambda: errors)
    await new.leave()
    assert errors == ["ShutdownException"]


async def test_a_lost_lease_refuses_checkpoints(
    aws: EmbeddedAws, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that takes longer than max_processing_seconds costs the lease."""
    caplog.set_level(logging.ERROR)
    errors: list[str] = []
    may_end = threading.Event()

    def hang(given: Any) -> None:
        may_end.wait(60)
        try:
            given.checkpointer.checkpoint()
        except CheckpointError as error:
            errors.append(error.value)

    aws.put("orders", b"a")
    fleet.on_records = hang
    old = Running(fleet.app("old", max_processing_seconds=0.5), "c1")
    await fleet.saw("old0 a")
    new = Running(fleet.app("new"), "c2")
    await fleet.saw("new0 a")
    may_end.set()
    await fleet.saw("old0 lost")
    assert errors[0] == "ShutdownException"
    assert "old0 requested" not in fleet.seen
    fleet.on_records = bool
    await old.leave()
    await new.leave()
