"""Test that partitions, and the domains of AWS, are those that botocore knows."""

from __future__ import annotations

import re
from pathlib import Path

import botocore.session
import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.runtime.partitions import aws_domains, is_aws_host, partition_of

SOURCES = Path(__file__).parents[3]
# Texts that name a partition. An example in a message or docstring names REGION.
NAMED = re.compile(
    r"aws-(?:cn|us-gov|iso|eusc)|amazonaws\.com\.cn"
    r"|f\"arn:aws:(?!iam|sts)|\"(?:cn|us-gov|us-iso)-"
)


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("us-east-1", "aws"),
        ("mx-central-1", "aws"),
        ("eu-newest-7", "aws"),  # a region that is added later
        ("cn-northwest-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-iso-east-1", "aws-iso"),
        ("us-isob-east-1", "aws-iso-b"),
        ("eu-isoe-west-1", "aws-iso-e"),
        ("us-isof-south-1", "aws-iso-f"),
        ("eusc-de-east-1", "aws-eusc"),
    ],
)
def test_a_region_has_a_partition(region: str, partition: str) -> None:
    assert partition_of(region) == partition


def test_every_region_of_kinesis_has_the_partition_that_botocore_says() -> None:
    session = botocore.session.Session()
    for partition in session.get_available_partitions():
        for region in session.get_available_regions("kinesis", partition):
            assert partition_of(region) == partition


def test_what_is_no_region_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="correct it, or upgrade botocore"):
        partition_of("moon-1")


@pytest.mark.parametrize(
    ("host", "is_of_aws"),
    [
        ("kinesis.eusc-de-east-1.amazonaws.eu", True),
        ("kinesis.us-iso-east-1.c2s.ic.gov", True),
        ("kinesis.cn-north-1.api.amazonwebservices.com.cn", True),
        ("kinesis.us-east-1.api.aws", True),
        ("amazonaws.com", False),
        ("amazonaws.com.example.org", False),
        ("kinesis.example.org", False),
    ],
)
def test_hosts_of_aws_are_those_of_its_domains(host: str, is_of_aws: bool) -> None:
    assert is_aws_host(host) is is_of_aws
    assert "amazonaws.eu" in aws_domains()


def test_no_module_names_a_partition() -> None:
    named = {
        f"{path.relative_to(SOURCES)}: {found[0]}"
        for directory in ("kinesumer", "scripts", "schema", "examples")
        for path in (SOURCES / directory).rglob("*")
        if path.suffix in (".py", ".json", ".tf", ".yaml", ".yml", ".sh")
        for found in [NAMED.search(path.read_text())]
        if found and "simulation" not in path.parts
    }
    assert named - EXAMPLES == set()


# Made-up ARNs, which no client uses.
EXAMPLES = {'kinesumer/testing/values.py: f"arn:aws:'}
