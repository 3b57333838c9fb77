"""Test that logs, errors, traces and pickles contain no secret, and logs no data."""

from __future__ import annotations

import asyncio
import enum
import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import msgspec
import pydantic
import pytest

from kinesumer import AccessDeniedError, Kinesumer, Start
from kinesumer.config import STATE_STORE
from kinesumer.errors import HandlerFailedError
from kinesumer.model.records import Record
from kinesumer.schemas import AvroDecoder
from kinesumer.testing.embedded_aws.identity import Credentials
from tests.support.cli import Run
from tests.support.delivery import Desk
from tests.support.handler_client import Runner
from tests.support.world import World, batch_of, hold, in_virtual_time
from tests.system.security.conftest import (
    EXTERNAL_ID,
    OTHER,
    QUICK,
    Accounts,
    close_connections_of_spark,
)
from tests.system.security.evidence import Evidence
from tests.system.security.queries import Query, put

SECRET = "the+secret/key=OfThisProcess"
TOKEN = "the+session/token=OfThisProcess"


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Evidence]:
    """All logs and traces of the package, and warnings of other packages."""
    found = Evidence()
    monkeypatch.setattr(
        "kinesumer.telemetry.otel.process_instruments", lambda: found.instruments
    )
    logging.getLogger().addHandler(found)
    logging.getLogger("kinesumer").setLevel(logging.DEBUG)
    yield found
    logging.getLogger().removeHandler(found)


@pytest.fixture
def keys(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> Credentials:
    """Temporary credentials in the environment, for the standard chain."""
    identities = accounts.aws._state.identities
    own = accounts.aws.account()._replace(
        access_key_id="ASIAOFTHISPROCESS",
        secret_access_key=SECRET,
        session_token=TOKEN,
    )
    identities.accept(own)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", own.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    return own


def secrets(accounts: Accounts) -> dict[str, str]:
    """Return all secrets, including the keys of roles."""
    found = {"external id": EXTERNAL_ID}
    for keys in accounts.aws._state.identities._by_key.values():
        if keys.session_token is not None:
            found[f"secret of {keys.arn}"] = keys.secret_access_key
            found[f"token of {keys.arn}"] = keys.session_token
    return found


def stored(accounts: Accounts) -> str:
    """Return the contents of the state store."""
    body = json.dumps({"TableName": STATE_STORE}).encode()
    return json.dumps(accounts.aws.dynamodb("Scan", body))


async def test_a_client_that_meets_every_fault_keeps_its_secrets(
    accounts: Accounts,
    keys: Credentials,
    evidence: Evidence,
    impatient: None,
    run: Run,
) -> None:
    aws, seen = accounts.aws, set()
    aws.create_role(
        "partner", account=OTHER, external_id=EXTERNAL_ID, session_seconds=1.2
    )
    accounts.put(5)
    with pytest.raises(AccessDeniedError) as raised:
        async with Kinesumer("app", table=STATE_STORE, config=QUICK) as client:
            async for record in client.consume(
                accounts.streams, start=Start.TRIM_HORIZON
            ):
                seen.add(record.data)
                if len(seen) == 15:
                    evidence.add_objects(client)
                    for kind in ("throttle", "error", "drop"):
                        aws.fault(kind, seconds=0.3)
                    aws.fault("expired_iterator", count=2)
                    accounts.put(2)
                    for form in ([], ["--json"]):
                        command = "status", "--app", "app", *form
                        shown = await asyncio.to_thread(run, *command)
                        evidence.add("status", shown.output, shown.stderr)
                    aws.outage(0.3)
                    # A client waits for a role that it had; it ends at its calls.
                    aws.deny("sts:AssumeRole")
                    while not evidence.has("logs", "access denied: sts:AssumeRole"):
                        await asyncio.sleep(0.05)
                    aws.deny("kinesis:*")
    evidence.add_error(raised.value)
    evidence.add_objects(client)
    evidence.add_telemetry()
    evidence.add("table", stored(accounts))
    assert evidence.places == {
        "logs",
        "errors",
        "reprs",
        "spans",
        "metrics",
        "status",
        "table",
    }
    assert not evidence.leaks(secrets(accounts))


def test_the_command_keeps_its_secrets_when_it_fails(
    accounts: Accounts, keys: Credentials, evidence: Evidence, run: Run
) -> None:
    accounts.aws.create_role("partner", account=OTHER, external_id="another-one")
    loud = "--debug", "--log-level", "DEBUG"
    to = "--app", "app", "--role", accounts.role, "--external-id", EXTERNAL_ID
    failed = run(*loud, "consume", accounts.payments, *to)
    assert "access denied: sts:AssumeRole" in failed.stderr
    evidence.add("command", failed.output, failed.stderr)
    accounts.aws.deny("dynamodb:*")
    for command in (["status", "--app", "app"], ["init"]):
        failed = run(*loud, *command)
        assert "Traceback" in failed.stderr
        evidence.add("command", failed.output, failed.stderr)
    assert not evidence.leaks(secrets(accounts))


def test_a_query_and_a_sink_keep_their_secrets(
    accounts: Accounts,
    keys: Credentials,
    evidence: Evidence,
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(close_connections_of_spark)
    accounts.put(3)
    query = Query(accounts)
    begin = query.offset
    assert len(query.batch()) == accounts.count
    tasks = query.reader.partitions(begin, query.offset)
    for stream in accounts.streams:
        put(stream)
    evidence.add("offsets", json.dumps(query.offset))
    evidence.add_objects(query.reader, *tasks)
    accounts.aws.deny("*")
    for act in (query.batch, lambda: put(accounts.streams[2])):
        with pytest.raises(AccessDeniedError) as raised:
            act()
        evidence.add_error(raised.value)
    accounts.aws.allow()
    query.reader.stop()
    evidence.add("table", stored(accounts))
    assert not evidence.leaks(secrets(accounts))
    # Executors assume the role themselves, so their tasks contain its external id.
    evidence.add("pickles", query.for_tasks, *map(pickle.dumps, tasks))
    assert evidence.leaks(secrets(accounts)) == {"external id in pickles"}


CARD = "4111111111111111"  # is in each record


class Kind(enum.Enum):
    ORDER = "order"


class Order(msgspec.Struct, forbid_unknown_fields=True):
    kind: Kind = Kind.ORDER
    total: int = 0


class Model(pydantic.BaseModel):
    total: int = 0


RECORDS = {
    Order: [f'{{"kind": "{CARD}"}}', f'{{"{CARD}": 1}}', f'{{"total": "{CARD}"', CARD],
    Model: [f'{{"total": "x{CARD}"}}', f"[{CARD}]", f'"{CARD}'],
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "card", "type": "string"}],
}
DECODERS: list[tuple[Any, str]] = [
    *((type_, text) for type_, texts in RECORDS.items() for text in texts),
    (AvroDecoder(AVRO), f"\x24\xff{CARD}"),
    (AvroDecoder(AVRO, type=Order), f"\x20{CARD}"),
    (AvroDecoder("long", type=Kind), "\x02"),
]
every_error = pytest.mark.parametrize(("decode", "text"), DECODERS)


@every_error
@in_virtual_time
async def test_a_skipped_record_is_logged_without_its_data(
    world: World, evidence: Evidence, decode: Any, text: str
) -> None:
    desk, owned = Desk(world, decode=decode, on_decode_error="skip"), hold()
    batch = batch_of(owned, 1)
    batch.records[0].data = text.encode("latin-1")
    desk.buffer.used += batch.size
    desk.buffer.put(batch)
    assert await desk.nothing_for(1)
    assert evidence.texts("logs")
    assert not evidence.leaks({"card": CARD})


@every_error
@pytest.mark.parametrize(
    "options",
    [
        {"dead_letters": "file:unused"},
        {"on_failure": "stop-shard"},
        {"on_failure": "stop-client"},
    ],
    ids=lambda options: next(iter(options.values())),
)
@pytest.mark.parametrize("in_handler", [False, True])
@in_virtual_time
async def test_a_record_that_run_gives_up_is_logged_without_its_data(
    world: World,
    evidence: Evidence,
    decode: Any,
    text: str,
    options: dict[str, str],
    in_handler: bool,
) -> None:
    if in_handler and not isinstance(decode, type):
        return  # a handler decodes JSON only

    async def handle(record: Record[Any]) -> None:
        if in_handler:
            record.json(decode)

    world.kinesis.put("orders", text.encode("latin-1"), explicit_hash_key=0)
    asked = options if in_handler else {**options, "decode": decode}
    runner = Runner(world, handle, **asked)
    if options.get("on_failure") == "stop-client":
        with pytest.raises(HandlerFailedError):
            await runner.task
    else:
        await world.until(lambda: evidence.texts("logs"))
    await runner.run(runner.group.stop(wait_for_user=False))
    assert not evidence.leaks({"card": CARD})
