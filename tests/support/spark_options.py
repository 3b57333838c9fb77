"""Parse the options of a query, and the errors of invalid ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinesumer import ConfigurationError, Start
from kinesumer.spark.options.parser import (
    ReadOptions,
    WriteOptions,
    connection_from,
    parse_read,
    parse_write,
)

PAYMENTS = "arn:aws:kinesis:eu-west-1:210987654321:stream/payments"
OTHER_ACCOUNT = PAYMENTS.replace("2109", "3109")
CONSUMER = f"{PAYMENTS}/consumer/billing:1700000000"
ROLE = "arn:aws:iam::210987654321:role/reader"
GROUP = {"app": "billing", "table": "state"}
NOON = Start.at(datetime(2026, 11, 20, 12, tzinfo=UTC))


def read(use: str | None = None, **options: str) -> ReadOptions:
    options = {"streams": "orders", **options}
    return parse_read(options, connection_from(options), use)


def write(**options: str) -> WriteOptions:
    options = {"streams": "orders", **options}
    return parse_write(options, connection_from(options))


def refusal(**options: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(**options)
    return str(caught.value)
