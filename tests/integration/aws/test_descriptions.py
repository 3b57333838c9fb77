"""Test the descriptions of streams, also as emulators of Kinesis write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kinesumer.aws.streams import decode_description
from kinesumer.model.streams import StreamInfo

SUMMARY: dict[str, Any] = {
    "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    "StreamStatus": "ACTIVE",
    "StreamCreationTimestamp": 1700000000.25,
    "RetentionPeriodHours": 48,
}


def described(**changes: object) -> StreamInfo:
    summary = SUMMARY | changes
    body = json.dumps({"StreamDescriptionSummary": summary}).encode()
    return decode_description(body, 7.0)


def test_a_description_has_what_kinesis_tells() -> None:
    assert described() == StreamInfo(
        SUMMARY["StreamARN"], "ACTIVE", 1700000000.25, 48, 7.0, 1 << 20, True
    )
    assert described(MaxRecordSizeInKiB=10240).max_record_bytes == 10 << 20


@pytest.mark.parametrize(
    ("strategy", "routes_by_key"),
    [(None, True), ("USER_PARTITION_KEY", True), ("AUTO", False)],
)
def test_the_strategy_tells_whether_keys_decide_on_shards(
    strategy: str | None, routes_by_key: bool
) -> None:
    info = described(RecordDistributionStrategy=strategy)
    assert info.routes_by_key is routes_by_key


def test_an_emulator_may_write_texts_and_nulls() -> None:
    odd = {
        "StreamCreationTimestamp": "2023-11-14T22:13:20.250Z",
        "MaxRecordSizeInKiB": None,
        "KeyId": None,
    }
    assert described(**odd) == described()


@pytest.mark.parametrize(
    "changes",
    [{"StreamARN": "orders"}, {"RetentionPeriodHours": "48"}, {"StreamStatus": None}],
)
def test_an_answer_of_something_else_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        described(**changes)
