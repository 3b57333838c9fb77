"""The sinks of the recipes, with empty tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from tests.integration.examples.loading import EXAMPLES

if TYPE_CHECKING:
    import psycopg

    from kinesumer.local import EmbeddedAws

TABLES = (EXAMPLES / "postgresql" / "tables.sql").read_text()
OUTPUT_TABLE = "order-counts"


class Sink(Protocol):
    """Where an example stores what it makes of records."""

    example: str

    def stored(self) -> list[str]:
        """Return the data or key of each record stored, as often as it is, sorted."""
        ...


class PostgreSQL:
    """A row for each record."""

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
    """A count for each partition key."""

    example = "dynamodb/consume.py"

    def __init__(self, aws: EmbeddedAws) -> None:
        self._aws = aws
        self.ask(
            "CreateTable",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def ask(self, operation: str, **request: Any) -> Any:
        """Carry out a request on the table."""
        body = {"TableName": OUTPUT_TABLE, **request}
        return self._aws.dynamodb(operation, json.dumps(body).encode())

    def stored(self) -> list[str]:
        """Return each key as often as it was counted, sorted."""
        items = self.ask("Scan", ConsistentRead=True)["Items"]
        counted = {
            item["pk"]["S"].partition("#")[2]: int(item["orders"]["N"])
            for item in items
            if "orders" in item
        }
        return sorted(key for key, count in counted.items() for _ in range(count))
