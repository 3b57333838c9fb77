"""Test the errors' base class, categories and messages."""

from __future__ import annotations

import pickle

import pytest

import kinesumer
from kinesumer import errors
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    FailedRecord,
    FatalError,
    GroupBusyError,
    KeyDeniedError,
    KinesumerError,
    PoisonRecordError,
    PutFailedError,
    ShardsLostError,
    TransientError,
)

ALL = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, Exception)
]

WITH_ARGUMENTS = (
    AccessDeniedError,
    KeyDeniedError,
    GroupBusyError,
    PoisonRecordError,
    PutFailedError,
    ShardsLostError,
)


def test_every_error_has_the_one_root() -> None:
    assert all(issubclass(error, KinesumerError) for error in ALL)


@pytest.mark.parametrize(
    "error",
    [
        AccessDeniedError("kinesis:GetRecords", "orders", "because of that"),
        KeyDeniedError("kms:Decrypt", "key/1", "because of that", "allow it"),
        AccessDeniedError("kinesis:GetRecords", "orders", "expired", "renew them"),
        ShardsLostError([("arn:aws:kinesis:us-east-1:1:stream/orders", "shard-1")]),
        GroupBusyError("reset", "what happened"),
        PoisonRecordError("arn:aws:kinesis:us-east-1:1:stream/orders", "shard-1", "7"),
        PutFailedError([FailedRecord(b"data", "key", None, "no answer")]),
        *(error("what happened") for error in ALL if error not in WITH_ARGUMENTS),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_can_be_passed_on_between_processes(error: Exception) -> None:
    error.add_note("seen in a worker")
    passed = pickle.loads(pickle.dumps(error))
    assert type(passed) is type(error)
    assert str(passed) == str(error)
    assert vars(passed) == vars(error)


def test_the_package_exports_its_errors_by_their_names() -> None:
    exported = {error for error in ALL if error.__name__ in kinesumer.__all__}
    assert {error for error in exported if issubclass(error, TransientError)} == set()
    for error in exported:
        assert getattr(kinesumer, error.__name__) is error
    assert issubclass(ConfigurationError, ValueError)


def test_a_busy_group_says_why() -> None:
    error = GroupBusyError("spark-query", "stop it")
    assert (error.reason, str(error)) == ("spark-query", "stop it")


def test_denied_access_names_action_and_resource() -> None:
    error = AccessDeniedError("kinesis:GetRecords", "arn:stream/orders", "no policy")
    assert isinstance(error, FatalError)
    assert (error.action, error.resource) == ("kinesis:GetRecords", "arn:stream/orders")
    assert str(error) == (
        "access denied: kinesis:GetRecords on arn:stream/orders: no policy; "
        "allow kinesis:GetRecords on it for the credentials in use"
    )
    assert "denied: a on b; allow" in str(AccessDeniedError("a", "b"))
    assert str(AccessDeniedError("a", "b", "c", "do")) == "access denied: a on b: c; do"


def test_lost_shards_are_listed_and_named() -> None:
    lost = [("arn:aws:kinesis:r:1:stream/orders", "shard-1"), ("arn:x/pay", "shard-2")]
    error = ShardsLostError(lost)
    assert error.shards == lost
    assert "orders/shard-1, pay/shard-2" in str(error)


def test_records_that_were_not_put_are_counted_with_the_first_reasons() -> None:
    reasons = ["throttled", "throttled", "denied", "timed out", "reset"]
    error = PutFailedError([FailedRecord(b"x", "k", None, text) for text in reasons])
    assert str(error) == (
        "5 of the records weren't put, or may not have been: throttled; denied; timed "
        "out; error.records has them: put them again, or store them elsewhere"
    )
