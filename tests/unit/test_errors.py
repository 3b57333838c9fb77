"""Errors: one root, sorted by what the caller can do, and messages that name things."""

from __future__ import annotations

import pickle

import pytest

import kinesumer
from kinesumer import errors
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    FatalError,
    GroupBusyError,
    KinesumerError,
    ShardsLostError,
    StoreThrottledError,
    StoreUnavailableError,
    TransientError,
)

ALL = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, Exception)
]


@pytest.mark.parametrize("error", ALL)
def test_every_error_has_the_one_root(error: type[Exception]) -> None:
    assert issubclass(error, KinesumerError)
    assert error.__doc__


@pytest.mark.parametrize(
    "error",
    [
        AccessDeniedError("kinesis:GetRecords", "orders", "because of that"),
        AccessDeniedError("kinesis:GetRecords", "orders", "expired", "renew them"),
        ShardsLostError([("arn:aws:kinesis:us-east-1:1:stream/orders", "shard-1")]),
        GroupBusyError("reset", "what happened"),
        *(
            error("what happened")
            for error in ALL
            if error not in (AccessDeniedError, GroupBusyError, ShardsLostError)
        ),
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


def test_a_busy_group_says_why() -> None:
    error = GroupBusyError("spark-query", "a query holds the app; stop it")
    assert (error.reason, str(error)) == (
        "spark-query",
        "a query holds the app; stop it",
    )


def test_configuration_errors_are_value_errors() -> None:
    assert issubclass(ConfigurationError, ValueError)


def test_a_throttled_store_is_an_unavailable_one() -> None:
    assert issubclass(StoreThrottledError, StoreUnavailableError)


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
