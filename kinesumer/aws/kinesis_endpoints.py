"""Find Kinesis's endpoints by botocore's rules, without a client of aiobotocore."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError

from kinesumer.aws.http.sigv4 import Destination
from kinesumer.runtime.partitions import partition_data

# AWS's other operations belong to its control plane.
DATA_OPERATIONS = ("GetRecords", "GetShardIterator", "PutRecords", "SubscribeToShard")
# The arguments on which an endpoint may depend. Botocore's rules name them, too.
ARGUMENTS = ("StreamARN", "ConsumerARN")
_REGION = re.compile(r"[a-z]+(-[a-z0-9]+)+")


class KinesisEndpoint:
    """Kinesis's endpoint in a region: a URL, or the one that botocore's rules tell."""

    def __init__(self, url: str | None, region: str) -> None:
        self._url, self._region = url, region

    def find(self, operation: str, arguments: Mapping[str, object]) -> Destination:
        """Return where to send a call. Raise BotoCoreError if no rule applies."""
        url = self._url
        if url is None:
            named = {name: arguments[name] for name in ARGUMENTS if name in arguments}
            plane = "data" if operation in DATA_OPERATIONS else "control"
            found = _rules().resolve_endpoint(
                Region=self._region,
                UseDualStack=False,
                UseFIPS=False,
                OperationType=plane,
                **named,
            )
            url = str(found.url)
        return Destination(url, self._region, "kinesis")


def plain_endpoint(url: str | None, region: str) -> KinesisEndpoint | None:
    """Return Kinesis's endpoint, or None if only aiobotocore can find or refuse it."""
    if not _REGION.fullmatch(region):
        return None
    if url is None:
        endpoint = KinesisEndpoint(None, region)
        return endpoint if _are_rules_known(endpoint) else None
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    is_whole = not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not (is_valid and is_whole):
        return None
    return KinesisEndpoint(url, region)


def _are_rules_known(endpoint: KinesisEndpoint) -> bool:
    """Return whether this version of botocore applies its rules as expected.

    The rules are data of AWS. Botocore may change the classes that apply the rules.
    """
    try:
        url = endpoint.find("ListShards", {}).url
    except (BotoCoreError, ImportError, AttributeError, LookupError, TypeError):
        return False
    return urlsplit(url).scheme == "https"


@cache
def _rules() -> Any:
    # Imported late: with an endpoint of the user's, the import of 0.05 s can be saved.
    from botocore.endpoint_provider import EndpointProvider
    from botocore.loaders import create_loader

    rules = create_loader().load_service_model("kinesis", "endpoint-rule-set-1")
    return EndpointProvider(rules, partition_data())
