"""Limit the time and the connections of calls, and name the program to AWS."""

from __future__ import annotations

from functools import cache

from kinesumer.runtime.extras import package_version

CONNECT_SECONDS = 3.0
READ_SECONDS = {
    "kinesis": 10.0,
    "dynamodb": 2.0,
    "sts": 5.0,
    "sqs": 10.0,
    "s3": 30.0,
    "glue": 5.0,
}
# Limit of each client's connections. For Kinesis, ``max_connections`` is added to it.
OTHER_CONNECTIONS = 128


@cache
def user_agent() -> str:
    """Return the user agent of all calls."""
    # Without this, botocore would build a user agent twice in each call, which takes a
    # sixth of the call's time.
    packages = ("kinesumer", "aiobotocore", "botocore")
    return " ".join(f"{package}/{package_version(package)}" for package in packages)
