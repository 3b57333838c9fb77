"""Test that clients write histories which keep every rule, however they consume."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kinesumer import Kinesumer, Record
from kinesumer.errors import ConfigurationError
from kinesumer.ops.history.check import Verdict, check_directories
from kinesumer.testing import EmbeddedAws
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
def aws(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> EmbeddedAws:
    """Return an AWS with a stream of numbered records. Clients write histories."""
    monkeypatch.setenv("KINESUMER_HISTORY", str(tmp_path / "histories"))
    put_numbers(kinesumer_aws)
    return kinesumer_aws


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "histories").iterdir())
    texts = [text for file in files for text in file.read_text().splitlines()]
    return [*map(json.loads, texts)]


def kinds(tmp_path: Path) -> Counter[str]:
    """Return how many records each kind of line names, and how many lines it has."""
    found = Counter[str]()
    for line in lines(tmp_path):
        found[line["kind"]] += len(line.get("positions", "1"))
    return found


def check(tmp_path: Path) -> Verdict:
    verdict = check_directories([tmp_path / "histories"])
    assert {rule: faults for rule, faults in verdict.faults.items() if faults} == {}
    return verdict


# --- ways to consume ------------------------------------------------------------------


async def decoded_loop() -> None:
    async with Kinesumer("app") as client:
        async for _ in client.consume([STREAM], decode=int, **FROM_THE_START):
            pass


async def columns() -> None:
    async with Kinesumer("app") as client:
        records = client.consume([STREAM], **FROM_THE_START)
        async for batch in records.batches(columns=True):
            batch.to_arrow()


WAYS: dict[str, tuple[Callable[[], Coroutine[Any, Any, None]], bool]] = {
    "a loop": (loop, False),
    "a loop over decoded records": (decoded_loop, False),
    "batches": (batches, False),
    "columns": (columns, False),
    "a loop with acknowledgements": (acknowledged, True),
    "a handler": (handler, True),
    "a handler in threads": (handler_in_threads, True),
    "a loop in a thread": (in_a_thread, False),
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_to_consume_writes_a_history_that_keeps_every_rule(
    aws: EmbeddedAws, tmp_path: Path, way: str
) -> None:
    consume, acknowledges = WAYS[way]

    await consume()

    found = kinds(tmp_path)
    assert found["client"] == 1
    assert found["deliver"] == RECORDS
    assert found["done"] == (RECORDS if acknowledges else 0)
    verdict = check(tmp_path)
    assert verdict.counts["checkpoints"] >= 2
    assert verdict.counts["shards"] == 2


async def test_a_record_that_a_handler_cannot_handle_is_given_up(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    async def handle(record: Record) -> None:
        if record.data == b"7":
            raise ValueError("seven")

    async with Kinesumer("app") as client:
        letters = f"file:{tmp_path / 'letters'}"
        await client.run([STREAM], handle, dead_letters=letters, **FROM_THE_START)

    found = kinds(tmp_path)
    assert (found["done"], found["give up"]) == (RECORDS - 1, 1)
    assert found["deliver"] > RECORDS  # the handler was called again
    check(tmp_path)


async def test_a_record_that_is_skipped_since_it_cannot_be_decoded_is_given_up(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    aws.put(STREAM, b"no number", "key-1")
    async with Kinesumer("app") as client:
        options: dict[str, Any] = {"on_decode_error": "skip", **FROM_THE_START}
        async for _ in client.consume([STREAM], decode=int, **options):
            pass

    found = kinds(tmp_path)
    assert (found["deliver"], found["give up"]) == (RECORDS, 1)
    check(tmp_path)


async def test_a_history_has_no_data_and_no_partition_key(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    aws.put(STREAM, b"secret-data", "secret-key")

    async def handle(record: Record) -> None:
        if record.data == b"secret-data":
            raise ValueError(f"cannot handle {record.data!r} of {record.partition_key}")

    async with Kinesumer("app") as client:
        letters = f"file:{tmp_path / 'letters'}"
        await client.run([STREAM], handle, dead_letters=letters, **FROM_THE_START)

    [file] = (tmp_path / "histories").iterdir()
    text = file.read_text()
    assert "secret" not in text
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in text


# --- the directory --------------------------------------------------------------------


async def test_a_client_that_cannot_write_its_history_does_not_start(
    aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KINESUMER_HISTORY", str(tmp_path / "file"))

    with pytest.raises(
        ConfigurationError, match=r"the history can't be written .*file"
    ):
        await loop()


async def test_a_client_whose_history_ends_early_ends(
    aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigurationError, match="No space left on device"):
        async with Kinesumer("app") as client:
            async for _ in client.consume([STREAM], **FROM_THE_START):
                monkeypatch.setattr("kinesumer.telemetry.history_file.os.write", full)
