"""Test that commands don't trust the stream names in others' rows and letters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from kinesumer.handlers.dead_letters.letter import encode_letter
from kinesumer.ops.group.connect import parse_roles
from kinesumer.wire.rows import STATE_STORE, STREAM_PREFIX
from tests.integration.ops.cli.conftest import Run
from tests.system.security.conftest import Accounts
from tests.unit.handlers.dead_letters.test_targets import LETTER

SECRET = "the secret of another team"
TELL = (
    "status",
    "lag --interval=0.5",
    "metrics --once",
    "distribution",
    "verify",
    "seek --all --to=LATEST --dry-run",
)
DO_NOT_ASK = "export", "pause --all", "resume --all", "reset --yes"


@pytest.fixture
def named(accounts: Accounts, impatient: None) -> str:
    """Return a stream without consumers that is mentioned only in a row of the app."""

    asyncio.run(accounts.consume_once("orders"))
    arn = accounts.aws.create_stream("secrets")
    accounts.aws.put("secrets", SECRET.encode(), "key")
    row = {
        "pk": {"S": "group#app"},
        "sk": {"S": STREAM_PREFIX + arn},
        "stream_created_at": {"S": "1.0"},
        "start": {"S": "TRIM_HORIZON"},
        "baseline": {"BOOL": True},
    }
    shard = {
        "pk": {"S": f"shard#app#{arn}"},
        "sk": {"S": f"{0:032x}/shardId-000000000000"},
        "last_hash": {"S": 32 * "f"},
        "start": {"S": "TRIM_HORIZON"},
        "ready": {"BOOL": True},
    }
    for item in (row, shard):
        request = {"TableName": STATE_STORE, "Item": item}
        accounts.aws.dynamodb("PutItem", json.dumps(request).encode())
    return arn


def was_read(accounts: Accounts, arn: str) -> bool:
    """Return whether a stream was requested since this function was last called."""
    latest = accounts.aws.journal.latest
    found = any(one.resource == arn for one in latest)
    latest.clear()
    return found


def test_commands_ask_about_streams_of_the_table_and_show_nothing_of_their_data(
    accounts: Accounts, named: str, run: Run
) -> None:
    was_read(accounts, named)
    for line in TELL:
        result = run(*line.split(), "--app=app")
        assert was_read(accounts, named), line
        assert SECRET not in result.output + result.stderr
    for line in DO_NOT_ASK:
        result = run(*line.split(), "--app=app")
        assert not was_read(accounts, named), line


def test_a_role_for_an_arn_reads_no_other_stream_of_its_name() -> None:
    ours, theirs = (f"arn:aws:kinesis:eu-west-1:{n:012d}:stream/orders" for n in (1, 2))
    role = "arn:aws:iam::000000000001:role/reader"
    by_name, by_arn, for_all = (
        parse_roles([text], None) for text in (f"orders={role}", f"{ours}={role}", role)
    )
    assert by_arn.stream(ours).role_arn == role
    assert by_arn.stream(theirs).role_arn is None
    assert by_name.stream(theirs).role_arn == for_all.stream(theirs).role_arn == role


def test_a_letter_of_others_is_put_where_it_says_only_if_somebody_agrees(
    accounts: Accounts, run: Run, tmp_path: Path
) -> None:
    arn = accounts.aws.create_stream("secrets")
    forged = msgspec.structs.replace(LETTER, stream_arn=arn, app="app")
    target = f"file:{tmp_path / 'letters'}"
    (tmp_path / "letters").write_bytes(encode_letter(forged))
    every = "dlq", "redrive", target, "--all"
    refused = run(*every)
    assert refused.exit_code == 2
    assert f"1 to stream {arn}" in refused.stderr
    assert not accounts.aws.journal.latest
    assert "1 put back" in run(*every, "--to-stream=orders", "--yes").output
    asked_of = {one.resource for one in accounts.aws.journal.latest}
    assert asked_of == {accounts.orders}
