"""Test that no log line quotes the data of a record that cannot be decoded."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pydantic
import pytest

from kinesumer.errors import HandlerFailedError
from kinesumer.model.records import Record
from kinesumer.schemas import AvroDecoder
from tests.support.delivery import Desk
from tests.support.handler_client import Runner
from tests.support.world import World, batch_of, hold, in_virtual_time
from tests.system.security.evidence import Evidence

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


@pytest.fixture
def evidence() -> Iterator[Evidence]:
    """All log lines, with their tracebacks and fields."""
    found, logger = Evidence(), logging.getLogger("kinesumer")
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)


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
