"""Test ``kinesumer dlq`` with dead letters in a file and in a stream."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters import DeadLetter
from kinesumer.errors import ConfigurationError, FatalError
from kinesumer.handlers.dead_letters.file import FileLetters
from kinesumer.handlers.dead_letters.letter import decode_letter
from kinesumer.handlers.dead_letters.targets import open_target
from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing import EmbeddedAws
from tests.support.cli import Run, report

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def letter(number: int, **changes: object) -> DeadLetter:
    fields: dict[str, object] = {
        "app": "billing",
        "stream_arn": ARN,
        "shard_id": "shardId-000000000000",
        "sequence_number": f"4959{number}",
        "partition_key": f"customer {number}",
        "data": b"order %d" % number,
        "error": f"ValueError: order {number} has no price",
        "traceback": "Traceback (most recent call last):\nValueError",
        "attempts": 3,
        "failed_at": NOON + timedelta(minutes=number),
    }
    return DeadLetter(**{**fields, **changes})  # type: ignore[arg-type]


def keep(target: str, *letters: DeadLetter) -> None:
    async def put() -> None:
        async with ClientFactory() as clients:
            opened = await open_target(target, clients)
            for one in letters:
                await opened.put(one)
            await opened.aclose()

    asyncio.run(put())


def records(aws: EmbeddedAws, name: str) -> list[list[tuple[bytes, str | None]]]:
    """Return the data and partition keys of each shard's records."""
    [stream] = [s for s in aws._state.kinesis.streams.values() if s.name == name]
    logs = [shard.log for shard in stream.shards.values()]
    return [[(record.data, record.partition_key) for record in log] for log in logs]


@pytest.fixture
def target(aws: EmbeddedAws, tmp_path: Path) -> str:
    """Create a stream, and a file that has two of its dead letters, one twice."""
    aws.create_stream("orders")
    name = f"file:{tmp_path / 'letters.jsonl'}"
    keep(name, letter(1), letter(2), letter(1, failed_at=NOON + timedelta(hours=1)))
    return name


def listed(run: Run, target: str, *filters: str) -> list[dict[str, Any]]:
    found = report(run("dlq", "list", target, "--json", *filters))
    assert found["unreadable"] == []
    letters: list[dict[str, Any]] = found["letters"]
    return letters


def test_a_missing_file_is_empty_and_logged(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = run("dlq", "list", f"file:{tmp_path / 'typo'}")
    assert (result.exit_code, result.stdout[:2]) == (0, "0 ")
    assert "typo: no such file" in caplog.text


def test_copies_of_a_letter_are_listed_once(target: str, run: Run) -> None:
    assert [(one["id"], one["copies"]) for one in listed(run, target)] == [
        (letter(2).id, 1),
        (letter(1).id, 2),
    ]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (("--error", "ORDER 2"), 1),
        (("--since", "2026-01-31T12:30:00Z"), 1),
        (("--stream", "orders", "--app", "billing"), 2),
        (("--app", "other"), 0),
    ],
)
def test_filters_select_letters(
    target: str, run: Run, filters: tuple[str, ...], count: int
) -> None:
    assert len(listed(run, target, *filters)) == count


def test_an_unreadable_line_is_reported_and_stays(
    target: str, run: Run, tmp_path: Path
) -> None:
    with (tmp_path / "letters.jsonl").open("a") as file:
        file.write("torn \x1b[31m")
    assert "! unreadable:" in run("dlq", "list", target).stderr
    assert run("dlq", "redrive", target, "--all", "--yes").exit_code == 0
    assert (tmp_path / "letters.jsonl").read_text() == "torn \x1b[31m\n"


def test_show_has_the_data_and_the_traceback(target: str, run: Run) -> None:
    told = run("dlq", "show", target, letter(2).id).output
    assert "order 2\n" in told
    assert "Traceback (most recent call last):\nValueError" in told


def test_a_redriven_record_keeps_its_partition_key_and_its_letter_is_removed(
    target: str, run: Run, aws: EmbeddedAws
) -> None:
    done = report(run("dlq", "redrive", target, letter(1).id, "--yes", "--json"))
    assert done["put"] == [letter(1).id]
    assert records(aws, "orders") == [[(b"order 1", "customer 1")]]
    assert [one["id"] for one in listed(run, target)] == [letter(2).id]


def test_a_redriven_record_keeps_its_explicit_hash_key(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_stream("orders", shards=2)
    hash_keys = ("0", str(HASH_KEYS - 1))
    target = f"file:{tmp_path / 'letters.jsonl'}"
    for n, key in enumerate(hash_keys):
        changes = {"data": key.encode(), "sub_sequence_number": n}
        keep(target, letter(1, explicit_hash_key=key, **changes))
    assert run("dlq", "redrive", target, "--all", "--yes").exit_code == 0
    assert records(aws, "orders") == [
        [(key.encode(), "customer 1")] for key in hash_keys
    ]


def test_letters_that_cannot_be_removed_are_named(
    target: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise FatalError("the disk is full")

    monkeypatch.setattr(FileLetters, "remove", refuse)
    done = run("dlq", "redrive", target, "--all", "--yes")
    assert done.exit_code == 1
    ids = (letter(1).id, letter(2).id)
    for text in ("2 records were put back", *ids, "the disk is full"):
        assert text in done.stderr


def test_redrive_needs_a_confirmation(target: str, run: Run) -> None:
    refused = run("dlq", "redrive", target, "--all")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert len(listed(run, target)) == 2


def test_a_letter_of_a_deleted_stream_stays(
    target: str, run: Run, aws: EmbeddedAws
) -> None:
    aws.delete_stream("orders")
    result = run("dlq", "redrive", target, "--all", "--yes", "--json")
    assert len(report(result, status=1)["failed"]) == 2
    assert len(listed(run, target)) == 2


def test_an_unknown_letter_is_named(target: str, run: Run) -> None:
    assert "no letter abc in" in run("dlq", "show", target, "abc").stderr


def test_letters_in_a_stream_are_kept_after_a_redrive(
    aws: EmbeddedAws, run: Run
) -> None:
    for name in ("letters", "retries"):
        aws.create_stream(name)
    keep("kinesis:letters", letter(1))
    command = ("dlq", "redrive", "kinesis:letters", "--all", "--yes")
    done = report(run(*command, "--to-stream=retries", "--json"))
    assert (done["put"], done["removed"]) == ([letter(1).id], False)
    assert run("dlq", "list", "kinesis:letters").output.startswith(letter(1).id)


def test_a_stream_refuses_its_own_letters(aws: EmbeddedAws) -> None:
    aws.create_stream("orders")
    with pytest.raises(ConfigurationError, match="cannot hold its own dead letters"):
        keep("kinesis:orders", letter(1))


def test_a_letter_that_is_too_large_for_a_stream_is_stored_without_data(
    aws: EmbeddedAws, run: Run
) -> None:
    for name in ("orders", "letters"):
        aws.create_stream(name)
    large = letter(1, data=bytes(1 << 20))
    keep("kinesis:letters", large)
    assert run("dlq", "list", "kinesis:letters").output.startswith(large.id)
    shown = run("dlq", "show", "kinesis:letters", large.id).output
    assert "data_bytes          1048576\n" in shown
    assert "The data was too large for the target." in shown
    as_json = report(run("dlq", "show", "kinesis:letters", large.id, "--json"))
    assert (as_json["data"], as_json["data_bytes"]) == (None, 1 << 20)
    answer = run("dlq", "redrive", "kinesis:letters", "--all", "--yes")
    assert answer.exit_code == 1
    assert f"{large.id} stays: it has no data" in answer.output
    assert f"{large.shard_id} at {large.sequence_number}" in answer.output
    assert records(aws, "orders") == [[]]


def test_a_stream_of_letters_may_change_its_largest_record(aws: EmbeddedAws) -> None:
    aws.create_stream("letters")
    large = letter(1, data=bytes(1 << 20))

    async def put_during_changes() -> None:
        async with ClientFactory() as clients:
            letters = await open_target("kinesis:letters", clients)
            aws.change_stream("letters", max_record_kib=4096)
            await letters.put(large)
            aws.advance(10)  # a shard takes 1 MiB a second
            aws.change_stream("letters", max_record_kib=1024)
            await letters.put(large)
            await letters.put(letter(2))
            await letters.aclose()

    asyncio.run(put_during_changes())
    kept = [decode_letter(body) for body, _ in records(aws, "letters")[0]]
    assert [(one.id, len(one.data)) for one in kept] == [
        (large.id, 1 << 20),
        (large.id, 0),
        (letter(2).id, len(letter(2).data)),
    ]


def test_a_redriven_record_without_a_key_gets_one_only_if_its_stream_needs_it(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_stream("orders", 1, mode="ON_DEMAND", distribution="AUTO")
    target = f"file:{tmp_path / 'letters.jsonl'}"
    without_key = letter(1, partition_key=None)
    for distribution in ("AUTO", "USER_PARTITION_KEY"):
        aws.change_stream("orders", distribution=distribution)
        keep(target, without_key)
        assert run("dlq", "redrive", target, "--all", "--yes").exit_code == 0
    assert records(aws, "orders") == [
        [(b"order 1", None), (b"order 1", without_key.id)]
    ]


def test_a_letter_whose_record_a_stream_refuses_keeps_no_other_from_its_stream(
    target: str, run: Run, aws: EmbeddedAws
) -> None:
    keep(target, letter(3, data=bytes(1 << 20)), letter(4))
    result = run("dlq", "redrive", target, "--all", "--yes", "--json")
    done = report(result, status=1)
    assert done["put"] == [letter(number).id for number in (1, 2, 4)]
    [failed] = done["failed"]
    assert "more than the 1,048,576" in failed["reason"]
