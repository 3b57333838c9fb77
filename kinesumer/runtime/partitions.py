"""AWS's partitions, which are groups of regions, as botocore knows them.

So a new partition, or a new region of one, needs only a newer botocore.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from kinesumer.errors import ConfigurationError


@cache
def partition_data() -> dict[str, Any]:
    """Return botocore's description of the partitions."""
    # Not at the top: Spark starts processes that check options and never call AWS.
    # Not by a session: it would read the user's profile, which may be missing.
    from botocore.loaders import create_loader

    found: dict[str, Any] = create_loader().load_data("partitions")
    return found


def _partitions() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = partition_data()["partitions"]
    return found


def all_regions() -> list[str]:
    """Return the names of all regions of all partitions."""
    return [region for partition in _partitions() for region in partition["regions"]]


@cache
def partition_of(region: str) -> str:
    """Return the partition of a region, which is the second part of each ARN.

    Raise ConfigurationError for a region that botocore doesn't know.
    """
    for partition in _partitions():
        is_known = region in partition["regions"]
        if is_known or re.match(partition["regionRegex"], region):
            return str(partition["id"])
    raise ConfigurationError(
        f"botocore doesn't know the region {region!r}: correct it, or upgrade botocore"
    )


def is_region(name: str) -> bool:
    """Return whether AWS has a region of this name, as far as botocore knows."""
    return any(name in partition["regions"] for partition in _partitions())


@cache
def aws_domains() -> frozenset[str]:
    """Return the domains of AWS's services in all partitions."""
    names = "dnsSuffix", "dualStackDnsSuffix"
    outputs = [partition["outputs"] for partition in _partitions()]
    return frozenset(output[name] for output in outputs for name in names)


def is_aws_host(host: str) -> bool:
    """Return whether a host belongs to AWS."""
    return any(host.endswith(f".{domain}") for domain in aws_domains())
