"""What a target of dead letters may hold: no letter, or half of one, spoils others."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.admin.redrive import Filter, StoredLetter, shard_order, to_entry
from kinesumer.cli import dlq
from kinesumer.dead_letters import DeadLetter
from kinesumer.dead_letters.letter import decode_letter, encode_letter
from kinesumer.errors import ConfigurationError, CorruptDeadLetterError
from kinesumer.wire.put_records import refusal
from tests.integration.cli.conftest import environment, run
from tests.system.hostile.pages import scraps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cli.conftest import Run

__all__ = ["environment", "run"]

SOUND: dict[str, Any] = {
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
    """Do with a letter what the commands do."""
    held = StoredLetter(letter, [])
    dlq._list_line(held)
    json.dumps(dlq._letter_report(letter))
    Filter(error="E", since=datetime.now(UTC)).matches(letter)
    sorted([letter, letter], key=shard_order)
    sorted([letter.failed_at, datetime.now(UTC)])
    entry = to_entry(letter)
    refusal(entry.data, entry.partition_key, entry.explicit_hash_key, 1 << 20)


@example("failed_at", "2026-11-21T14:41:01")
@example("failed_at", "0001-01-01T00:00:00+14:00")
@example("failed_at", "9999-12-31T23:59:59-14:00")
@example("arrived_at", "9999-12-31T23:59:59-14:00")
@example("attempts", 10**300)
@example("sub_sequence_number", -(10**30))
@example("explicit_hash_key", "9" * 5000)
@example("data", "b3JkZXI")
@given(st.sampled_from([*SOUND, "arrived_at", "traceback"]) | st.text(), scraps)
def test_what_is_read_as_a_letter_can_be_shown_sorted_and_put_back(
    name: str, value: object
) -> None:
    try:
        letter = decode_letter(json.dumps({**SOUND, name: value}))
    except CorruptDeadLetterError:
        return
    read(letter)


@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"version":1,"x":' + b"[" * 100_000)
@example(b'{"version":1,"attempts":' + b"9" * 10_000 + b"}")
@given(st.binary() | st.text().map(str.encode))
def test_what_is_no_letter_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptDeadLetterError):
        decode_letter(content)


def test_a_letter_that_nobody_could_read_back_is_not_written() -> None:
    letter = DeadLetter(
        **{name: SOUND[name] for name in ("app", "stream_arn", "shard_id", "error")},
        sequence_number="1",
        data=b"",
        attempts=1,
        failed_at=datetime(2026, 11, 21),
    )
    with pytest.raises(ConfigurationError, match="has no time zone"):
        encode_letter(letter)


BAD = [
    json.dumps({**SOUND, "failed_at": "2026-11-21T14:41:01"}).encode(),
    json.dumps({**SOUND, "failed_at": "0001-01-01T00:00:00+14:00"}).encode(),
    json.dumps({**SOUND, "version": 2}).encode(),
    json.dumps(SOUND).encode()[:-20],
    b"\x00\xff" * 1000,
    b"x" * (1 << 20),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: repr(bad[-20:]))
def test_a_line_that_is_no_letter_is_named_and_hides_no_other(
    run: Run, tmp_path: Path, bad: bytes
) -> None:
    path = tmp_path / "letters"
    path.write_bytes(b"\n%b\n%b\n" % (bad, json.dumps(SOUND).encode()))
    for filters in ((), ("--since=2020-01-01T00:00:00Z",)):
        result = run("dlq", "list", f"file:{path}", *filters)
        assert result.exit_code == 0, result.stderr
        assert "KeyError: 'total'" in result.stdout
        assert result.stderr.startswith("! unreadable: line 2: not a dead letter")
        assert result.stderr.count("\n") == 1
