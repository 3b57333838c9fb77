"""Test that the examples in the README and in the guides run as printed."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import kinesumer
from kinesumer import Config, Kinesumer, Producer, Record, Start
from kinesumer.consuming.streams import as_streams
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS
from tests.support.doc_pages import PAGES, blocks, named_parts, snippet
from tests.support.glue_registry import avro, glue_data, serve_glue_registry
from tests.support.snippets import Until, evaluated, play

TABLE = "kinesumer-state-store"
OTHER = "210987654321"


def test_snippets_import_what_they_name_of_kinesumer() -> None:
    public = {*kinesumer.__all__, "kinesumer", "DeadLetter", "open_dead_letters"}
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for page, _, text in blocks("python"):
        nodes = list(ast.walk(compile(text, page, "exec", flags)))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert used & public <= imported, text


def test_pages_show_every_line_that_their_programs_need() -> None:
    """Without the future import, names of annotations must exist when a file is run."""
    for page in PAGES:
        assert "TYPE_CHECKING" not in page.read_text(), page


# Parts of blocks that do not run here, and the reason. They are compiled all the same.
NOT_RUN = {
    ("docs/kcl-fleets.md", "kcl_table="): "needs a KCL fleet",
    ("docs/monitoring.md", "PrometheusMetricReader"): "needs another package",
    ("docs/session.md", "AioSession(profile="): "needs another package",
}


def test_every_python_block_is_run() -> None:
    here = Path(__file__)
    modules = ("test_programs", "test_functions", "test_otlp", "test_tables")
    others = [here.parent / f"{name}.py" for name in modules]
    named = {name for path in (here, *others) for name in named_parts(path)}
    named |= {*NOT_RUN}
    for page, _, text in blocks("python"):
        assert any(name == page and part in text for name, part in named), text


# --- parts of programs ---


def client(**options: Any) -> Kinesumer:
    return Kinesumer(app="billing", table=TABLE, config=Config(**options))


def other_account(aws: EmbeddedAws, external_id: str | None = None) -> None:
    """Create the stream "payments" in another account, and a role that reads it."""
    arn = aws.create_stream("payments", account=OTHER, region="eu-west-1")
    aws.put(arn, b"{}", "key")
    aws.create_role("reader", account=OTHER, external_id=external_id)


@pytest.mark.parametrize(
    ("page", "part", "external_id"),
    [
        ("README.md", "client.consume(streams", None),
        ("docs/cross-account.md", 'role_arn="arn:', "agreed-upon"),
    ],
)
async def test_streams_of_two_accounts(
    aws: EmbeddedAws, page: str, part: str, external_id: str | None
) -> None:
    other_account(aws, external_id)
    handle = Until(4)
    text = snippet(page, part).replace("    ...\n", "    await handle(record)\n")
    await play(text, {"handle": handle}, handle.enough)
    assert {record.stream for record in handle.seen} == {"orders", "payments"}


async def test_fan_out(aws: EmbeddedAws) -> None:
    aws.create_stream("payments")
    aws.put("payments", b"{}", "key")
    handle = Until(4)
    text = snippet("docs/fan-out.md", 'fan_out="billing"')
    text = text.replace("    ...\n", "    await handle(record)\n")
    await play(text, {"handle": handle}, handle.enough)
    assert {record.stream for record in handle.seen} == {"orders", "payments"}
    names: dict[str, Any] = {}
    await evaluated(snippet("docs/fan-out.md", "role_arn="), names)
    assert as_streams(names["payments"]) == [names["payments"]]


CALLS = [
    ("docs/index.md", "client.consume("),
    ("README.md", "client.run("),
    ("docs/quickstart.md", "concurrency=10"),
    ("docs/quickstart.md", "batch.millis_behind"),
    ("docs/quickstart.md", 'b"last"'),
    ("docs/handlers.md", "headers.traceparent"),
    ("docs/handlers.md", "await charge("),
    ("docs/handlers.md", "TaskGroup"),
]


@pytest.mark.parametrize(("page", "part"), CALLS)
async def test_calls_of_a_client(
    aws: EmbeddedAws, page: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.create_stream("payments")
    handled = Until()

    async def handle(record: Record) -> None:
        await handled(record)

    async with client(commit="manual" if part == "TaskGroup" else "auto") as own:
        names = {
            "asyncio": asyncio,
            "client": own,
            "handle": handle,
            "streams": ["orders"],
            "write_to_database": handled,
            "charge": handled,
            "read_header": lambda data: None,
        }
        await play(snippet(page, part), names, handled.enough)
    assert handled.seen


async def test_records_from_now_on(aws: EmbeddedAws) -> None:
    handle = Until()

    async def produce() -> None:
        while not handle.seen:
            aws.put("orders", b"{}", "key")
            await asyncio.sleep(0.05)

    text = snippet("docs/migrating-from-go.md", "Start.LATEST")
    text = text.replace("        ...\n", "        await handle(record)\n")
    producing = asyncio.create_task(produce())
    await play(text, {"handle": handle}, handle.enough)
    await producing
    assert handle.seen


PUTS = [  # and the number of requests
    ("README.md", "Producer(", 1),
    ("docs/produce.md", "aggregate=True", 1),
    ("docs/produce.md", 'traceparent="headers', 1),
    ("docs/produce.md", "result = await future", 1),
    ("docs/produce.md", "except PutFailedError", 0),
    ("docs/produce.md", "with blocking.Producer(", 1),
]


@pytest.mark.parametrize(("page", "part", "requests"), PUTS)
async def test_calls_of_a_producer(
    kinesumer_aws: EmbeddedAws, page: str, part: str, requests: int
) -> None:
    kinesumer_aws.create_stream("orders")
    async with Producer("orders", linger_seconds=0.01) as own:
        names: dict[str, Any] = {"orders": ["1", "2"], "producer": own}
        await evaluated(snippet(page, part), names)
    assert kinesumer_aws.journal.count("kinesis", "PutRecords") == requests


ORDER = b'{"customer": "ann", "total": 7}'


async def test_records_with_decoded_values(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.put("orders", ORDER, "key")
    charge = Until()
    text = snippet("docs/decoding.md", "class Order")
    await play(text, {"charge": charge}, charge.enough)
    assert charge.seen == [("ann", 7.0)]


async def test_records_with_schemas(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesumer_aws.create_stream("orders")
    charge = Until()
    names: dict[str, Any] = {"charge": charge}
    text = snippet("docs/schemas.md", "AvroDecoder(SCHEMA")
    exec(text.partition("decode =")[0], names)
    data = avro(json.loads(names["SCHEMA"]), {"customer": "ann", "total": 7})
    kinesumer_aws.put("orders", data, "key")
    await play(text, names, charge.enough)
    assert charge.seen == [("ann", 7.0)]

    with serve_glue_registry("shop") as registry:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", registry.url)
        id = registry.register("AVRO", names["SCHEMA"])
        kinesumer_aws.put("orders", glue_data(id, data), "key")
        charge.enough.clear()
        text = snippet("docs/schemas.md", "GlueDecoder(type=Order")
        await play(text, names, charge.enough)
    assert charge.seen == [("ann", 7.0)] * 2


DECODING = [
    ("docs/decoding.md", "def on_order"),
    ("docs/decoding.md", "except DecodeError"),
]


@pytest.mark.parametrize(("page", "part"), DECODING)
async def test_records_that_cannot_be_decoded(
    kinesumer_aws: EmbeddedAws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    kinesumer_aws.create_stream("payments")
    kinesumer_aws.create_stream("orders")
    for data in (b"no JSON", ORDER):
        kinesumer_aws.put("orders", data, "key")
    charge, aside = Until(), []

    async def put_aside(record: Record, error: Exception) -> None:
        aside.append(record.data)

    names: dict[str, Any] = {"charge": charge, "put_aside": put_aside}
    declared = snippet("docs/decoding.md", "class Order").partition("async with")[0]
    await evaluated(declared, names)
    async with client() as own:
        text = snippet(page, part)
        await play(text, {**names, "client": own}, charge.enough)
    assert charge.seen == [("ann", 7.0)]
    letters = tmp_path / "dead-letters.jsonl"
    assert aside or len(letters.read_text().splitlines()) == 1


async def test_an_app_gets_what_is_opened() -> None:
    stored: list[Any] = []

    async def store(value: object) -> None:
        stored.append(value)

    names: dict[str, Any] = {
        "Order": msgspec.defstruct("Order", [("total", int)]),
        "Pool": SimpleNamespace,
        "open_pool": lambda: SimpleNamespace(store=store),
    }
    await evaluated(snippet("README.md", "Depends(open_pool)"), names)
    async with names["app"].test() as test:
        await test.feed("orders", b'{"total": 5}')
    assert stored == [names["Order"](5)]


async def test_the_lifespan_of_an_app(capsys: pytest.CaptureFixture[str]) -> None:
    async def read_rates() -> str:
        return "rates"

    names: dict[str, Any] = {"read_rates": read_rates}
    await evaluated(snippet("docs/run.md", "lifespan=lifespan"), names)

    async def handle(record: Record) -> None:
        assert names["app"].state.rates == "rates"

    names["app"].handler("orders")(handle)
    async with names["app"].test() as test:
        await test.feed("orders", b"{}")
    assert capsys.readouterr().out == "all records are done\n"


async def test_a_function_of_a_client(aws: EmbeddedAws) -> None:
    handle = Until()
    names: dict[str, Any] = {"handle": handle}
    await evaluated(snippet("docs/run.md", "async def main"), names)
    async with client() as own:
        running = asyncio.ensure_future(names["main"](own))
        while not handle.seen:
            aws.put("orders", b"{}", "key")
            await asyncio.sleep(0.05)
        running.cancel()


async def test_hooks(aws: EmbeddedAws) -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet("docs/handlers.md", "class Timing"), names)
    handled = Until(3)

    async def handle(record: Record) -> None:
        await handled(record)

    async with client() as of_the_program:
        running = of_the_program.run("orders", handle, middleware=[names["Timing"]()])
        task = asyncio.ensure_future(running)
        await handled.enough.wait()
        await of_the_program.leave()
        await task


async def test_records_are_acknowledged_by_hand(aws: EmbeddedAws) -> None:
    taken = Until(3)
    names: dict[str, Any] = {"queue": SimpleNamespace(put=taken)}
    text = snippet("docs/quickstart.md", "queue.put")
    task = asyncio.ensure_future(play(text, names, asyncio.Event()))
    await asyncio.wait_for(taken.enough.wait(), PATIENCE_SECONDS)
    acknowledge = snippet("docs/quickstart.md", "client.ack")
    for record in taken.seen:
        await evaluated(acknowledge, {"client": names["client"], "record": record})
    await names["client"].leave()
    await task


async def test_what_is_kept_of_a_shard_is_written_when_it_moves(
    aws: EmbeddedAws,
) -> None:
    written = Until()
    names: dict[str, Any] = {"write_sum": written}
    text = snippet("docs/shard-state.md", "on_revoked")
    task = asyncio.ensure_future(play(text, names, asyncio.Event()))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any(names.get("open_records", {}).values()):
            await asyncio.sleep(0.05)
    await names["client"].leave()
    await task
    assert written.enough.is_set()
    assert names["open_records"] == {}


def stored_letters() -> str:
    path = Path("dead.jsonl")
    return path.read_text() if path.exists() else ""


async def test_dead_letters_where_one_iterates(aws: EmbeddedAws) -> None:
    seen = Until(4)

    async def charge(data: bytes) -> None:
        await seen(data)
        if data == b'{"total": 1}':
            raise ValueError("no")

    names: dict[str, Any] = {"charge": charge}
    await evaluated(snippet("docs/dead-letters.md", "open_dead_letters"), names)
    async with client() as of_the_program:
        task = asyncio.ensure_future(names["consume"](of_the_program))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (stored_letters() and len(seen.seen) >= 3):
                await asyncio.sleep(0.05)
        await of_the_program.leave()
        await task
    assert "ValueError: no" in stored_letters()


async def test_pauses_other_streams_and_the_end(aws: EmbeddedAws) -> None:
    aws.create_stream("payments")
    aws.create_stream("refunds")
    async with client() as of_the_program:
        names: dict[str, Any] = {"client": of_the_program}
        records = of_the_program.consume("orders")
        await anext(records)
        await evaluated(snippet("docs/quickstart.md", "client.lag()"), names)
        await evaluated(snippet("docs/control.md", "client.pause"), names)
        await evaluated(snippet("docs/quickstart.md", "refresh"), names)


async def test_a_signal_ends_run(aws: EmbeddedAws) -> None:
    async def handle(record: Record) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    # The client of the snippet begins at LATEST.
    async with client() as of_the_program:
        await anext(of_the_program.consume("orders", start=Start.TRIM_HORIZON))
    names = {"handle": handle}
    async with asyncio.timeout(PATIENCE_SECONDS):
        await evaluated(snippet("docs/quickstart.md", "stop_signals"), names)


async def test_middlewares_of_faststream() -> None:
    names: dict[str, Any] = {}
    await evaluated(
        snippet("docs/faststream.md", "KinesisTelemetryMiddleware()"), names
    )
    assert len(names["broker"].middlewares) == 2
