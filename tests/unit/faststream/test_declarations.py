"""Test which declarations are refused, and what they say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from faststream.exceptions import FeatureNotSupportedException, SetupError

from kinesumer import Config, ConfigurationError, Stream
from kinesumer.faststream import KinesisBroker, KinesisRouter

BROKER = KinesisBroker("billing")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: BROKER.subscriber(), "names no stream"),
        (lambda: BROKER.subscriber("orders", group="x"), "no argument group"),  # type: ignore[call-arg]
        (lambda: BROKER.publisher("orders", key="x"), "no argument key"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_argument_is_refused(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        declare()


def test_names_are_checked_when_they_are_given() -> None:
    with pytest.raises(ConfigurationError, match="app"):
        KinesisBroker("")
    with pytest.raises(ConfigurationError, match="stream"):
        BROKER.subscriber("")


def test_without_faststream_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['faststream'] = None; import kinesumer.faststream"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "pip install 'kinesumer[faststream]'" in done.stderr


def test_tables_and_arns_have_no_prefix() -> None:
    router, arn = (
        KinesisRouter("eu-"),
        "arn:aws:kinesis:us-east-1:123456789012:stream/x",
    )
    subscriber = router.subscriber("orders", arn, Stream(table="customers"))
    KinesisBroker("billing", routers=[router])
    names = [stream.name for stream in subscriber.streams]
    assert names == ["eu-orders", arn, "table/customers"]


def test_the_broker_acknowledges_records_itself() -> None:
    with pytest.raises(ConfigurationError, match="leave Config"):
        KinesisBroker("billing", config=Config(commit="manual"))


async def test_there_are_no_requests() -> None:
    for request in (BROKER.request, BROKER.publisher("orders").request):
        with pytest.raises(FeatureNotSupportedException, match="reply_to="):
            await request("x", "orders")
    with pytest.raises(FeatureNotSupportedException, match="reply_to="):
        await BROKER.config.producer.request(None)
