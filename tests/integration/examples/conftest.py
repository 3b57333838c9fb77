"""Provide the recipes' sinks with empty tables, and a PostgreSQL server."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog

from kinesumer.testing import EmbeddedAws
from tests.support.clock import wait_until
from tests.support.crowd import EXAMPLES

USER = "postgres"
TABLES = (EXAMPLES / "postgresql" / "tables.sql").read_text()
OUTPUT_TABLE = "order-counts"


class PostgreSQL:
    """A sink that stores one row for each record."""

    example = "postgresql/consume.py"

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(TABLES)

    def stored(self) -> list[str]:
        """Return the data of each row, sorted."""
        found = self.connection.execute("SELECT data FROM orders ORDER BY data")
        return [bytes(data).decode() for (data,) in found.fetchall()]


class DynamoDB:
    """A sink that stores a count for each partition key."""

    example = "dynamodb/consume.py"

    def __init__(self, aws: EmbeddedAws) -> None:
        self._aws = aws
        self.request(
            "CreateTable",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def request(self, operation: str, **fields: Any) -> Any:
        """Carry out a request on the table."""
        body = {"TableName": OUTPUT_TABLE, **fields}
        return self._aws.dynamodb(operation, json.dumps(body).encode())

    def stored(self) -> list[str]:
        """Return each key as many times as it was counted, sorted."""
        items = self.request("Scan", ConsistentRead=True)["Items"]
        counts = {
            item["pk"]["S"].partition("#")[2]: int(item["orders"]["N"])
            for item in items
            if "orders" in item
        }
        return sorted(key for key, count in counts.items() for _ in range(count))


class Iceberg:
    """A sink that stores one row for each record in a table."""

    example = "iceberg/consume.py"

    def __init__(self, directory: Path) -> None:
        self.catalog = open_catalog(directory)

    def stored(self) -> list[str]:
        """Return the data of each row, sorted."""
        if not self.catalog.table_exists("kinesis.orders"):
            return []
        rows = self.catalog.load_table("kinesis.orders").scan().to_arrow()
        return sorted(data.decode() for data in rows["data"].to_pylist())


Sink = PostgreSQL | DynamoDB | Iceberg


def open_catalog(directory: Path) -> SqlCatalog:
    """Open the catalog of the recipe for Iceberg."""
    url = f"sqlite:///{directory}/catalog.db"
    return SqlCatalog("local", uri=url, warehouse=f"file://{directory}")


def stored_rows(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of all Parquet files, each once, as SELECT DISTINCT does."""
    rows: list[dict[str, Any]] = []
    for file in directory.glob("*.parquet"):
        rows += [row for row in parquet.read_table(file).to_pylist() if row not in rows]
    return rows


@pytest.fixture
def iceberg(tmp_path: Path) -> Iceberg:
    """Return a catalog without tables."""
    return Iceberg(tmp_path)


@pytest.fixture
def dynamodb(kinesumer_aws: EmbeddedAws) -> DynamoDB:
    """Return an embedded AWS's DynamoDB with a table for the output."""
    return DynamoDB(kinesumer_aws)


@pytest.fixture
def postgresql(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgreSQL]:
    """Connect to the server's database, and empty the tables."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(autocommit=True) as connection:
        yield PostgreSQL(connection)


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """Run PostgreSQL on a socket; yield the environment in which libpq finds it."""
    found = find_spec("pgserver")
    if found is None or found.origin is None:
        pytest.skip("pgserver, which brings PostgreSQL, has no wheels for this machine")
    binaries = Path(found.origin).parent / "pginstall" / "bin"
    # PostgreSQL's user couldn't read a folder of pytest.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": folder}
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root.
        user = pwd.getpwnam("nobody")
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        shutil.chown(folder, user.pw_uid, user.pw_gid)
    data = folder / "data"
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync"],
            check=True,
            **options,
        )
        process = subprocess.Popen(
            [
                *(binaries / "postgres", "-D", data, "-F", "--listen_addresses="),
                f"--unix_socket_directories={folder}",
            ],
            stderr=subprocess.DEVNULL,
            **options,
        )
        try:
            wait_until(lambda: _answers(str(folder)), "PostgreSQL answers")
            yield {"PGHOST": str(folder), "PGUSER": USER, "PGDATABASE": USER}
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown, despite open sessions
            process.wait()
    finally:
        shutil.rmtree(folder)


def _answers(socket: str) -> bool:
    try:
        psycopg.connect(host=socket, user=USER, dbname=USER).close()
    except psycopg.OperationalError:
        return False
    return True
