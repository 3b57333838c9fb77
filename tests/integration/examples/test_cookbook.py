"""Run the programs of the cookbook against an embedded AWS."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from kinesumer import Start
from kinesumer.blocking import Kinesumer
from kinesumer.testing import EmbeddedAws
from tests.integration.examples.conftest import PostgreSQL, open_catalog
from tests.support.clock import wait_until
from tests.support.crowd import EXAMPLES, ROOT, lines, running, running_app
from tests.support.glue_registry import avro, glue_data, serve_glue_registry
from tests.support.recipes import path

pytestmark = pytest.mark.process


def test_an_app_writes_orders_and_its_test_needs_no_aws(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    ledger, letters = tmp_path / "ledger.txt", tmp_path / "letters.jsonl"
    variables = {"LEDGER": str(ledger), "DEAD_LETTERS": str(letters)}
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b'{"customer": "ann", "total": 7}', "ann")
    kinesumer_aws.put("orders", b"no JSON", "bob")
    with running_app("app", "app:app", **variables):
        wait_until(ledger.exists)
        wait_until(ledger.read_text, "an order is written")
        wait_until(letters.exists, "a dead letter is written")
    assert ledger.read_text() == "ann pays 7.0\n"
    # As the page says, in a directory that has no settings of pytest.
    for name in ("app.py", "test_app.py"):
        shutil.copy(EXAMPLES / "app" / name, tmp_path)
    page = (ROOT / "docs" / "run.md").read_text()
    [arguments] = re.findall(r"^\$ python -m (pytest .*)$", page, re.M)
    done = subprocess.run(
        [sys.executable, "-m", *arguments.split()],
        cwd=tmp_path,
        env={name: os.environ[name] for name in os.environ if "AWS" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout


def test_events_are_pydantic_models_and_invalid_ones_are_kept(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    kinesumer_aws.create_stream("orders", shards=1)
    for data in (
        b'{"type": "placed", "customer": "ann", "total": 7}',
        b'{"type": "placed", "customer": "bob", "total": -1}',
        b'{"type": "cancelled", "customer": "ann"}',
    ):
        kinesumer_aws.put("orders", data, "key")
    variables = {"DEAD_LETTERS": str(letters)}
    with running_app("pydantic", "app:app", **variables) as process:
        assert lines(process, 2) == ["ann orders for 7.0", "ann cancels"]
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert "greater_than at" in letter["error"]


def test_each_record_comes_once_into_an_iceberg_table(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    command = "iceberg/consume.py", "billing", "orders", str(tmp_path)
    numbers: list[int] = []

    def put() -> None:
        numbers.append(len(numbers))
        data = b"%d" % numbers[-1]
        kinesumer_aws.put("orders", data, data.decode())

    def table() -> Table | None:
        catalog = open_catalog(tmp_path)
        exists = catalog.table_exists("kinesis.orders")
        return catalog.load_table("kinesis.orders") if exists else None

    def is_complete() -> bool:
        found = table()
        rows = [] if found is None else found.scan().to_arrow()["data"].to_pylist()
        assert len({*rows}) == len(rows)
        return sorted(map(int, rows)) == numbers

    def has_new_owner() -> bool:
        put()
        found = table()
        places = [] if found is None else found.properties.values()
        return any(re.match(r"[2-9] \d+", place) for place in places)

    put()
    with running(*command):
        wait_until(is_complete)
        with running(*command):
            wait_until(has_new_owner)
        wait_until(is_complete)
    # The same records again, as after a crash before the positions were stored.
    seek = ["seek", "--app", "billing", "--to", "TRIM_HORIZON", "--all", "--yes"]
    subprocess.run(
        [sys.executable, "-m", "kinesumer.ops.cli", *seek],
        check=True,
        capture_output=True,
    )
    put()
    with running(*command):
        wait_until(is_complete)


def test_records_of_two_versions_of_a_glue_schema_are_read(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    fields = [
        {"name": "customer", "type": "string"},
        {"name": "total", "type": "double"},
    ]
    coupon = {"name": "coupon", "type": ["null", "string"], "default": None}
    with serve_glue_registry("shop") as registry:
        for names, order in (
            (fields, {"customer": "ann", "total": 7}),
            ([*fields, coupon], {"customer": "bob", "total": 9, "coupon": "x"}),
        ):
            schema = {"type": "record", "name": "Order", "fields": names}
            id = registry.register("AVRO", json.dumps(schema))
            data = glue_data(id, avro(schema, order), compress="coupon" in order)
            kinesumer_aws.put("orders", data, "key")
        variables = {"GLUE_REGISTRY": "shop", "AWS_ENDPOINT_URL_GLUE": registry.url}
        with running_app("glue", "app:app", **variables) as process:
            assert lines(process, 2) == [
                "ann pays 7.0 (coupon: None)",
                "bob pays 9.0 (coupon: x)",
            ]


def test_a_pool_stores_each_record_once(
    kinesumer_aws: EmbeddedAws, postgresql: PostgreSQL
) -> None:
    kinesumer_aws.create_stream("orders", shards=4)
    expected = sorted(str(number) for number in range(100))
    for number in expected:
        kinesumer_aws.put("orders", number.encode(), f"key {number}")
    with running_app("postgresql", "pool:app"):
        wait_until(lambda: len(postgresql.stored()) >= 100, "all records are stored")
    assert postgresql.stored() == expected
    with running_app("postgresql", "pool:app"):
        kinesumer_aws.put("orders", b"last", "key")
        wait_until(lambda: "last" in postgresql.stored(), "the last record is stored")
    assert postgresql.stored() == [*expected, "last"]


def test_a_broker_publishes_what_subscribers_return(
    kinesumer_aws: EmbeddedAws,
) -> None:
    for stream in ("orders", "invoices"):
        kinesumer_aws.create_stream(stream, shards=1)
    for total in (100, 0, 200):
        data = b'{"customer": "ann", "total": %d}' % total
        kinesumer_aws.put("orders", data, "ann")
    amounts = []
    with running_app("broker", "app:app"), Kinesumer("audit") as audit:
        for record in audit.consume("invoices", start=Start.TRIM_HORIZON):
            amounts.append(record.json()["amount"])
            if len(amounts) == 2:
                break
    assert sorted(amounts) == [119, 238]


def test_the_notebook_reads_the_last_ten_minutes(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    for customer, total in (("ann", 7), ("bob", 1), ("ann", 2)):
        data = json.dumps({"customer": customer, "total": total}).encode()
        kinesumer_aws.put("orders", data, customer)
    monkeypatch.setenv("SECONDS", "4")
    monkeypatch.setenv("PATH", path())
    notebook = json.loads((EXAMPLES / "notebook/last_ten_minutes.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    assert names["totals"].rows() == [("ann", 9), ("bob", 1)]


def test_the_cookbook_names_every_example() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text()
    folders = {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()}
    assert folders == set(re.findall(r"examples/(\w+)", page))
