"""Build the ARNs of the embedded AWS's resources."""

from __future__ import annotations

from kinesumer.errors import ConfigurationError
from kinesumer.runtime.partitions import partition_of


def served_partition(region: str) -> str:
    """Return the partition of a region; ``aws`` if the region exists only here."""
    try:
        return partition_of(region)
    except ConfigurationError:
        return "aws"


def resource_arn(service: str, region: str, account: str, resource: str) -> str:
    """Return the ARN of a resource in a region."""
    return f"arn:{served_partition(region)}:{service}:{region}:{account}:{resource}"
