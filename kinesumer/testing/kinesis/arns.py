"""Build the ARNs of the embedded AWS's resources."""

from __future__ import annotations

from kinesumer.runtime.partitions import partition_of


def resource_arn(service: str, region: str, account: str, resource: str) -> str:
    """Return the ARN of a resource in a region."""
    return f"arn:{partition_of(region)}:{service}:{region}:{account}:{resource}"
