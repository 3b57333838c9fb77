"""Test record processors of shards that end, move and are lost."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kinesumer.kclpy import Checkpointer, CheckpointError, ShardNotEndedError
from kinesumer.testing import EmbeddedAws
from tests.support.clock import until
from tests.support.kclpy_fleet import Fleet, Running, run_until

FIRST = "shardId-000000000000"


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
