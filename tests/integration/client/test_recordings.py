"""Test that clients record what they are told, and that replays do what they did."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kinesumer import Kinesumer, Record, Stream
from kinesumer.ops.history.check import check_directories
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.simulation.replay.run import ReplayOutcome, replay
from kinesumer.testing.simulation.replay.writes import REPEATED, kind_of, text_of
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.clock import PATIENCE_SECONDS
from tests.support.ways_to_consume import (
    FROM_THE_START,
    RECORDS,
    STREAM,
    acknowledged,
    batches,
    handler,
    handler_in_threads,
    in_a_thread,
    loop,
    put_numbers,
)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file of the recording that clients write."""
    path = tmp_path / "recording"
    monkeypatch.setenv("KINESUMER_RECORD", str(path))
    return path


@pytest.fixture
def aws(kinesumer_aws: EmbeddedAws) -> EmbeddedAws:
    """Return an AWS with a stream of numbered records."""
    put_numbers(kinesumer_aws)
    return kinesumer_aws


def replayed(file: Path) -> ReplayOutcome:
    """Replay a recording in which nothing differs."""
    outcome = replay(file)
    assert not outcome.divergence, "\n".join(outcome.lines)
    return outcome


def did(outcome: ReplayOutcome, what: str) -> int:
    """Return how many writes of a kind a replayed client did."""
    return sum(e.what == "did" and e.text.startswith(what) for e in outcome.events)


def decisions(outcome: ReplayOutcome) -> list[str]:
    """Return the writes that a replayed client does not just repeat."""
    texts = [event.text for event in outcome.events if event.what == "did"]
    return [text.partition(":")[0] for text in texts if not text.startswith("commit")]


def written_decisions(history: Path) -> list[str]:
    """Return the same writes of a client, by its history."""
    lines = [json.loads(text) for text in history.read_text().splitlines()]
    calls = {x["call"]: x for x in lines if x["kind"] == "call"}
    answered = [calls[x["call"]] for x in lines if x["kind"] == "answer"]
    writes = [call for call in answered if call["name"] == "write"]
    return [text_of(call) for call in writes if kind_of(call) not in REPEATED]


# --- ways to consume ------------------------------------------------------------------


async def two_loops() -> None:
    async with Kinesumer("app") as client:
        records = client.consume([STREAM], **FROM_THE_START)
        async for _ in records:
            break
        async for _ in records.batches():
            pass


async def leaving(stream: Stream | str = STREAM) -> None:
    async with Kinesumer("app") as client:
        leaving = set[asyncio.Task[None]]()
        got = 0
        async for _ in client.consume([stream], start="TRIM_HORIZON"):
            got += 1
            if got == RECORDS:
                leaving.add(asyncio.create_task(client.leave()))
        await asyncio.gather(*leaving)


async def by_fan_out() -> None:
    await leaving(Stream(STREAM, fan_out="reader"))


WAYS: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
    "a loop": loop,
    "batches": batches,
    "two loops": two_loops,
    "a loop with acknowledgements": acknowledged,
    "a handler": handler,
    "a handler in threads": handler_in_threads,
    "a loop in a thread": in_a_thread,
    "a loop that leaves": leaving,
    "a loop by fan-out": by_fan_out,
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_replay_does_what_the_client_did(
    aws: EmbeddedAws, file: Path, way: str
) -> None:
    await WAYS[way]()

    outcome = await asyncio.to_thread(replayed, file)

    assert did(outcome, "register") == 1
    assert did(outcome, "claim") == 2
    assert did(outcome, "release") == 2
    told = [e.text for e in outcome.events if e.what == "told"]
    assert sum(int(text.split()[1]) for text in told) == RECORDS
    assert outcome.events[-2].text == "the program left the client"


async def test_a_history_and_a_recording_can_be_written_at_once(
    aws: EmbeddedAws, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = file.parent / "histories"
    monkeypatch.setenv("KINESUMER_HISTORY", str(histories))

    await loop()

    outcome = await asyncio.to_thread(replayed, file)
    [history] = await asyncio.to_thread(lambda: [*histories.iterdir()])
    assert decisions(outcome) == await asyncio.to_thread(written_decisions, history)
    verdict = check_directories([histories])
    assert verdict.counts["deliveries"] == RECORDS
    assert not any(verdict.faults.values())


async def test_a_recording_has_no_data_no_keys_and_no_values(
    aws: EmbeddedAws, file: Path
) -> None:
    parts = [Entry(b'"aggregated-secret"', "secret-key-1", None)] * 3
    aws.put(STREAM, aggregate(parts), "secret-key-2")
    aws.put(STREAM, b'"plain-secret"', "secret-key-3")
    shown = []

    async def handle(record: Record[str]) -> None:
        shown.append(record.value)
        if "secret" in str(record.value):
            raise ValueError(
                f"cannot handle {record.value!r} of {record.partition_key}"
            )

    async with Kinesumer("app") as client:
        await client.run(
            [STREAM],
            handle,
            decode=lambda record: record.data.decode() + "-decoded",
            dead_letters=f"file:{file.parent / 'letters'}",
            **FROM_THE_START,
        )

    assert '"aggregated-secret"-decoded' in shown
    text = await asyncio.to_thread(file.read_text)
    for hidden in ("secret", "decoded", "key-", os.environ["AWS_SECRET_ACCESS_KEY"]):
        assert hidden not in text


async def test_a_recording_that_cannot_be_written_ends_with_one_warning(
    aws: EmbeddedAws, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkdir(file)

    with caplog.at_level(logging.WARNING, "kinesumer"):
        await loop()

    [line] = [
        r.getMessage() for r in caplog.records if "KINESUMER_RECORD" in r.msg % r.args
    ]
    assert "Is a directory" in line


def test_a_killed_command_leaves_a_recording_that_can_be_replayed(
    aws: EmbeddedAws, file: Path
) -> None:
    arguments = ["consume", STREAM, "--app", "app", "--start", "TRIM_HORIZON"]
    with subprocess.Popen(
        [sys.executable, "-m", "kinesumer.ops.cli", *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, **aws.environment()},
    ) as command:
        assert command.stdout is not None
        for _ in range(RECORDS):
            assert command.stdout.readline()
        command.kill()
    assert command.returncode == -9

    again = [sys.executable, "-m", "kinesumer.testing.simulation", "replay", str(file)]
    found = subprocess.run(
        again, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )

    assert found.returncode == 0, found.stdout + found.stderr
    assert "did       claim orders shardId-000000000000, epoch 1" in found.stdout
    assert "no divergence" in found.stdout
