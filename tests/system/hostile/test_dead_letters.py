"""Test that invalid objects in a dead-letter target don't affect valid letters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters import DeadLetter
from kinesumer.errors import ConfigurationError, CorruptDeadLetterError
from kinesumer.handlers.dead_letters.letter import decode_letter, encode_letter
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.ops.cli import dlq
from kinesumer.ops.group.redrive import Filter, StoredLetter, shard_order, to_entry
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.put_records import refusal
from tests.support.cli import Run, environment, run
from tests.support.letters import LETTER, clients, stored, target, url
from tests.support.toy_stream import INFO
from tests.system.hostile.strategies import json_values

__all__ = ["clients", "environment", "run", "target", "url"]

VALID: dict[str, Any] = {
    "version": 1,
    "app": "billing",
    "stream_arn": "arn:aws:kinesis:us-east-1:000000000000:stream/orders",
    "shard_id": "shardId-000000000000",
    "sequence_number": "4959",
    "partition_key": "customer",
    "data": "b3JkZXI=",
    "error": "KeyError: 'total'",
    "attempts": 3,
    "failed_at": "2026-11-21T14:41:01Z",
}


def read(letter: DeadLetter) -> None:
    """Read a letter as the commands do."""
    dlq._list_line(StoredLetter(letter, []))
    json.dumps(dlq._letter_report(letter))
    Filter(error="E", since=datetime.now(UTC)).matches(letter)
    sorted([letter, letter], key=shard_order)
    sorted([letter.failed_at, datetime.now(UTC)])
    for routes_by_key in (True, False):
        stream = INFO._replace(routes_by_key=routes_by_key)
        refusal(to_entry(letter, stream), stream)


@example("failed_at", "2026-11-21T14:41:01")
@example("failed_at", "0001-01-01T00:00:00+14:00")
@example("failed_at", "9999-12-31T23:59:59-14:00")
@example("arrived_at", "9999-12-31T23:59:59-14:00")
@example("attempts", 10**300)
@example("sub_sequence_number", -(10**30))
@example("explicit_hash_key", "9" * 5000)
@example("data", "b3JkZXI")
@example("data_bytes", 10**30)
@given(
    st.sampled_from([*VALID, "arrived_at", "traceback", "data_bytes"]) | st.text(),
    json_values,
)
def test_any_decoded_letter_can_be_shown_sorted_and_put_back(
    name: str, value: object
) -> None:
    for version in (1, 2):
        check({**VALID, "version": version, "data_bytes": 7, name: value})


def check(fields: dict[str, Any]) -> None:
    """Read a letter, if it is one."""
    try:
        letter = decode_letter(json.dumps(fields))
    except CorruptDeadLetterError:
        return
    read(letter)


@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"version":1,"x":' + b"[" * 100_000)
@example(b'{"version":1,"attempts":' + b"9" * 10_000 + b"}")
@given(st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_arent_a_letter(content: bytes) -> None:
    with pytest.raises(CorruptDeadLetterError):
        decode_letter(content)


def test_a_letter_without_a_time_zone_is_not_written() -> None:
    letter = DeadLetter(
        **{name: VALID[name] for name in ("app", "stream_arn", "shard_id", "error")},
        sequence_number="1",
        data=b"",
        attempts=1,
        failed_at=datetime(2026, 11, 21),
    )
    with pytest.raises(ConfigurationError, match="has no time zone"):
        encode_letter(letter)


def test_invalid_lines_are_named_and_valid_lines_are_listed(
    run: Run, tmp_path: Path
) -> None:
    invalid = [
        json.dumps({**VALID, "failed_at": "0001-01-01T00:00:00+14:00"}).encode(),
        json.dumps({**VALID, "version": 2}).encode(),
        json.dumps(VALID).encode()[:-20],
        b"\x00\xff" * 1000,
        b"x" * (1 << 20),
    ]
    path = tmp_path / "letters"
    path.write_bytes(b"\n".join([*invalid, json.dumps(VALID).encode(), b""]))
    for filters in ((), ("--since=2020-01-01T00:00:00Z",)):
        result = run("dlq", "list", f"file:{path}", *filters)
        assert result.exit_code == 0, result.stderr
        assert "KeyError: 'total'" in result.stdout
        errors = result.stderr.splitlines()
        assert len(errors) == len(invalid)
        for number, error in enumerate(errors, start=1):
            assert error.startswith(f"! unreadable: line {number}: not a dead letter")


# --- letters in targets ---

INVALID = [b"no letter", b"[" * 100_000, b'{"version":2}', b"\xff\x00"]


async def leave(clients: ClientFactory, target: str, name: str, content: bytes) -> None:
    kind, _, address = target.partition(":")
    if kind == "s3":
        s3 = (await clients.open("s3")).client
        bucket, _, folder = address.removeprefix("//").partition("/")
        await s3.put_object(Bucket=bucket, Key=f"{folder}/{name}", Body=content)
        return
    text = content.decode(errors="replace")
    more = {"MessageGroupId": name, "MessageDeduplicationId": name}
    sqs = (await clients.open("sqs")).client
    await sqs.send_message(
        QueueUrl=address, MessageBody=text, **(more if address.endswith("fifo") else {})
    )


async def test_invalid_objects_are_named_and_remain(
    clients: ClientFactory, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.handlers.dead_letters.s3.MAX_ANSWER_BYTES", 1 << 17)
    letters = await open_readable(target, clients)
    await letters.put(LETTER)
    large = b"x" * (1 << 18)
    for number, content in enumerate([*INVALID, large]):
        await leave(clients, target, f"{number}.json", content)
    found = await stored(letters)
    assert [one.letter for one in found if one.letter] == [LETTER]
    problems = [one.problem for one in found if not one.letter]
    assert len(problems) == 5
    in_s3 = target.startswith("s3:")
    start = f"{target}/" if in_s3 else "message "
    assert all(text.startswith(start) for text in problems)
    if in_s3:
        too_long = f"{start}4.json: not a dead letter, as it has 262,144 bytes"
        assert problems[4].startswith(too_long)
    await letters.remove([one for one in found if one.letter])
    await letters.aclose()
    again = await stored(letters)
    assert sorted(one.problem for one in again) == sorted(problems)
    await letters.remove(again)
    await letters.aclose()


async def test_invalid_records_of_a_stream_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with EmbeddedAws() as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_stream("dead")
        numbers = [aws.put("dead", content, "k")[1] for content in INVALID]
        async with ClientFactory() as clients:
            letters = await open_readable("kinesis:dead", clients)
            await letters.put(LETTER)
            found = await stored(letters)
    assert [one.letter for one in found if one.letter] == [LETTER]
    for number, one in zip(numbers, found, strict=False):
        assert f"/{number}: not a dead letter" in one.problem
