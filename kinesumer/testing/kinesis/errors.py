"""Define the error responses of AWS, and the ARNs of its resources."""

from __future__ import annotations

from functools import partial

from kinesumer.runtime.partitions import partition_of


class AwsError(Exception):
    """An error response of AWS: code, message and HTTP status."""

    code: str
    message: str
    status: int

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


invalid_argument: partial[AwsError] = partial(AwsError, "InvalidArgumentException")
invalid_request: partial[AwsError] = partial(AwsError, "ValidationException")
limit_exceeded: partial[AwsError] = partial(AwsError, "LimitExceededException")
not_found: partial[AwsError] = partial(AwsError, "ResourceNotFoundException")
unknown_operation: partial[AwsError] = partial(AwsError, "UnknownOperationException")


def resource_arn(service: str, region: str, account: str, resource: str) -> str:
    """Return the ARN of a resource in a region."""
    return f"arn:{partition_of(region)}:{service}:{region}:{account}:{resource}"
