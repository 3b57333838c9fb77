"""``kinesumer dlq``: letters in a file and in a stream, shown and put back."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kinesumer.admin.arguments import parse_time
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters import DeadLetter
from kinesumer.dead_letters.file import FileLetters
from kinesumer.dead_letters.targets import open_target
from kinesumer.errors import (
    ConfigurationError,
    DeadLetterTooLargeError,
    FatalError,
)
from kinesumer.model.streams import HASH_KEYS, Start, Stream

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Run

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


def records(stream: str) -> list[list[tuple[bytes, str | None]]]:
    """Return data and partition key of all that each shard of a stream has."""

    async def read() -> list[list[tuple[bytes, str | None]]]:
        async with ClientFactory() as clients:
            source = await open_source(clients, Stream(stream))
            found = []
            for shard in await source.list_shards():
                iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
                page = await source.get_records(iterator, 100)
                found.append([(one.data, one.partition_key) for one in page.records])
            return found

    return asyncio.run(read())


@pytest.fixture
def target(aws: EmbeddedAws, tmp_path: Path) -> str:
    """A file with two letters, one of them twice; their stream exists."""
    aws.create_stream("orders")
    name = f"file:{tmp_path / 'letters.jsonl'}"
    keep(name, letter(1), letter(2), letter(1, failed_at=NOON + timedelta(hours=1)))
    return name


def test_a_file_that_isnt_there_holds_nothing_and_is_told(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = run("dlq", "list", f"file:{tmp_path / 'typo'}")
    assert (result.exit_code, result.stdout[:2]) == (0, "0 ")
    assert "typo: no such file" in caplog.text


def test_a_letter_that_is_there_twice_is_listed_once(target: str, run: Run) -> None:
    listed = json.loads(run("dlq", "list", target, "--json").output)
    assert [(one["id"], one["copies"]) for one in listed["letters"]] == [
        (letter(2).id, 1),
        (letter(1).id, 2),
    ]
    assert listed["unreadable"] == []


def test_filters_leave_out_what_is_not_meant(target: str, run: Run) -> None:
    def count(*filters: str) -> int:
        return len(
            json.loads(run("dlq", "list", target, "--json", *filters).output)["letters"]
        )

    assert count("--error", "ORDER 2") == 1
    assert count("--since", "2026-01-31T12:30:00Z") == 1
    assert count("--stream", "orders", "--app", "billing") == 2
    assert count("--app", "other") == 0


def test_a_line_that_is_no_letter_is_told_and_stays(
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


def test_a_record_put_back_has_its_partition_key_and_its_letter_is_gone(
    target: str, run: Run
) -> None:
    done = run("dlq", "redrive", target, letter(1).id, "--yes", "--json")
    assert json.loads(done.stdout)["put"] == [letter(1).id]
    assert records("orders") == [[(b"order 1", "customer 1")]]
    left = json.loads(run("dlq", "list", target, "--json").output)["letters"]
    assert [one["id"] for one in left] == [letter(2).id]


def test_a_record_of_an_aggregate_goes_where_its_explicit_hash_key_says(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_stream("orders", shards=2)
    hash_keys = ("0", str(HASH_KEYS - 1))
    keep(
        f"file:{tmp_path / 'letters.jsonl'}",
        *(
            letter(1, data=key.encode(), sub_sequence_number=n, explicit_hash_key=key)
            for n, key in enumerate(hash_keys)
        ),
    )
    target = f"file:{tmp_path / 'letters.jsonl'}"
    assert run("dlq", "redrive", target, "--all", "--yes").exit_code == 0
    assert records("orders") == [[(key.encode(), "customer 1")] for key in hash_keys]


def test_records_whose_letters_could_not_be_taken_out_are_named(
    target: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise FatalError("the disk is full")

    monkeypatch.setattr(FileLetters, "remove", refuse)
    done = run("dlq", "redrive", target, "--all", "--yes")
    assert done.exit_code == 1
    for told in (
        "2 records were put back",
        letter(1).id,
        letter(2).id,
        "the disk is full",
    ):
        assert told in done.stderr


def test_nothing_is_put_back_unless_somebody_says_so(target: str, run: Run) -> None:
    refused = run("dlq", "redrive", target, "--all")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert len(json.loads(run("dlq", "list", target, "--json").output)["letters"]) == 2


def test_a_letter_whose_stream_is_gone_stays(
    target: str, run: Run, aws: EmbeddedAws
) -> None:
    aws.delete_stream("orders")
    result = run("dlq", "redrive", target, "--all", "--yes", "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["failed"]) == 2
    assert len(json.loads(run("dlq", "list", target, "--json").output)["letters"]) == 2


def test_an_unknown_letter_is_named(target: str, run: Run) -> None:
    assert "no letter abc in" in run("dlq", "show", target, "abc").stderr


def test_letters_in_a_stream_are_put_elsewhere_and_kept(
    aws: EmbeddedAws, run: Run
) -> None:
    for name in ("letters", "retries"):
        aws.create_stream(name)
    keep("kinesis:letters", letter(1))
    command = ("dlq", "redrive", "kinesis:letters", "--all", "--yes")
    done = json.loads(run(*command, "--to-stream=retries", "--json").stdout)
    assert (done["put"], done["removed"]) == ([letter(1).id], False)
    assert run("dlq", "list", "kinesis:letters").output.startswith(letter(1).id)


def test_a_stream_does_not_keep_its_own_letters_nor_what_is_too_large(
    aws: EmbeddedAws,
) -> None:
    for name in ("orders", "letters"):
        aws.create_stream(name)
    with pytest.raises(ConfigurationError, match="can't keep its own dead letters"):
        keep("kinesis:orders", letter(1))
    with pytest.raises(DeadLetterTooLargeError, match="too large for stream"):
        keep("kinesis:letters", letter(1, data=bytes(1 << 20)))


def test_since_takes_a_time_with_its_zone_or_how_long_ago() -> None:
    assert parse_time("--since", "2h", NOON) == NOON - timedelta(hours=2)
    assert parse_time("--since", "2026-01-31T12:00:00Z", NOON) == NOON
    for text in ("2026-01-31T12:00:00", "soon", "99999999999d"):
        with pytest.raises(ConfigurationError, match="--since"):
            parse_time("--since", text, NOON)
