"""Test what record processors get, and what they checkpoint, with an embedded AWS."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.kclpy import CheckpointError, ProcessorApp
from kinesumer.ops.history.check import check_directories
from kinesumer.testing import EmbeddedAws
from tests.support.aggregates import User, frame, message
from tests.support.clock import until
from tests.support.kclpy_fleet import PROPERTIES, Fleet, Running, run_until


def put_aggregate(aws: EmbeddedAws, *texts: str) -> None:
    aws.put("orders", frame(message([User("k", None, t.encode()) for t in texts])))


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


async def test_processors_may_be_called_without_records_to_store_what_they_have(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    """A processor that waits for more records checkpoints when none come."""
    fleet.on_request = bool
    sizes: list[int] = []

    def collect(given: Any) -> None:
        sizes.append(len(given.records))
        if not given.records:
            given.checkpointer.checkpoint()

    fleet.on_records = collect
    fleet.more = (
        "callProcessRecordsEvenForEmptyRecordList = true\n"
        "idleTimeBetweenReadsInMillis = 200\n"
    )
    _, number = aws.put("orders", b"a")
    running = Running(fleet.app())
    await until(lambda: sizes[-2:] == [0, 0] and any(sizes))
    await running.leave()
    aws.put("orders", b"b")
    await run_until(fleet, "0 b")
    assert fleet.seen.count("0 a") == 1
    assert f"0 begins {number[-2:]}/0" in fleet.seen


async def test_a_processor_that_exits_without_records_ends_the_client(
    aws: EmbeddedAws, fleet: Fleet
) -> None:
    def leave(_: Any) -> None:
        raise SystemExit(3)

    fleet.on_records = leave
    fleet.more = "callProcessRecordsEvenForEmptyRecordList = true\n"
    app = fleet.app()
    with pytest.raises(SystemExit):
        async with app.client() as client:
            await app.run(client)


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
    with pytest.raises(ConfigurationError, match="object can't be a record"):
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
