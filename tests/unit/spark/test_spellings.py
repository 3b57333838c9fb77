"""Options as other connectors spell them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinesumer import Start, Stream
from kinesumer.spark.options.parser import (
    Connection,
    ReadOptions,
    connection_from,
    parse_read,
)
from kinesumer.spark.options.table import FOREIGN_OPTIONS
from tests.unit.spark.test_options import PAYMENTS, ROLE, refusal

pytestmark = pytest.mark.usefixtures("no_settings")


def test_a_query_for_databricks_is_read() -> None:
    given = {
        "streamARN": PAYMENTS,
        "initialPosition": '{"at_timestamp": "11/20/2026 13:00:00 +0100", '
        '"format": "MM/dd/yyyy HH:mm:ss ZZZ"}',
        "roleArn": ROLE,
        "roleExternalId": "x",
        "endpoint": "kinesis.eu-west-1.amazonaws.com",
    }
    assert parse_read(given, connection_from(given)) == ReadOptions(
        streams=(Stream(PAYMENTS, role_arn=ROLE, external_id="x"),),
        connection=Connection(
            region="eu-west-1",
            kinesis_endpoint="https://kinesis.eu-west-1.amazonaws.com",
        ),
        starting=Start.at(datetime(2026, 11, 20, 12, tzinfo=UTC)),
    )


def test_a_query_for_awslabs_is_read() -> None:
    given = {
        "kinesis.streamName": "orders",
        "kinesis.region": "eu-west-1",
        "kinesis.endpointUrl": "https://kinesis.eu-west-1.amazonaws.com",
        "kinesis.startingposition": "AT_TIMESTAMP 2026-11-20T12:00:00Z",
        "kinesis.failOnDataLoss": "true",
        "kinesis.stsRoleArn": ROLE,
        "kinesis.stsSessionName": "me",
    }
    assert parse_read(given, connection_from(given)).streams == (
        Stream("orders", role_arn=ROLE, session_name="me"),
    )


def test_giving_an_option_in_two_spellings_is_refused() -> None:
    message = refusal({"streams": "orders", "streamName": "orders"})
    assert "option streams is given twice: as streams and as streamName" in message


@pytest.mark.parametrize("name", FOREIGN_OPTIONS)
def test_an_option_without_a_counterpart_is_refused_with_the_reason(name: str) -> None:
    message = refusal({"streams": "orders", name: "1"})
    assert message == f"option {name} doesn't exist: {FOREIGN_OPTIONS[name]}"


@pytest.mark.parametrize("text", ["06/25/2026 10:23:45 PDT", "25.6.2026"])
def test_a_time_that_isnt_of_its_format_is_refused(text: str) -> None:
    message = refusal(
        {
            "streamName": "orders",
            "initialPosition": f'{{"at_timestamp": "{text}", '
            '"format": "MM/dd/yyyy HH:mm:ss ZZZ"}',
        }
    )
    assert "isn't of the format" in message
