"""The IAM policy that a run needs, and no more."""

from __future__ import annotations

from typing import Any

from kinesumer.testing.trial.acceptance.resources import PREFIX

TABLE_ACTIONS = (
    "CreateTable",
    "DeleteItem",
    "DeleteTable",
    "DescribeTable",
    "GetItem",
    "ListTagsOfResource",
    "PutItem",
    "Query",
    "TagResource",
    "UpdateItem",
)
STREAM_ACTIONS = (
    "AddTagsToStream",
    "CreateStream",
    "DeleteStream",
    "DescribeStreamSummary",
    "GetRecords",
    "GetShardIterator",
    "ListShards",
    "ListTagsForStream",
    "MergeShards",
    "PutRecord",
    "PutRecords",
    "SplitShard",
)
CONSUMER_ACTIONS = (
    "DeregisterStreamConsumer",
    "DescribeStreamConsumer",
    "ListStreamConsumers",
    "RegisterStreamConsumer",
    "SubscribeToShard",
)


def policy(*, fan_out: bool, role_arn: str | None) -> dict[str, Any]:
    """Return the policy of a run with these options.

    The role of another account needs the statements ``Streams`` and ``Lists``.
    """
    streams = f"arn:*:kinesis:*:*:stream/{PREFIX}-*"  # in any partition
    statements = [
        _allow(
            "Table", "dynamodb", TABLE_ACTIONS, f"arn:*:dynamodb:*:*:table/{PREFIX}-*"
        ),
        _allow("Streams", "kinesis", STREAM_ACTIONS, streams),
        {
            "Sid": "Lists",
            "Effect": "Allow",
            "Action": ["dynamodb:ListTables", "kinesis:ListStreams"],
            "Resource": "*",
        },
    ]
    if fan_out:
        statements.append(_allow("Consumers", "kinesis", CONSUMER_ACTIONS, streams))
    if role_arn is not None:
        statements.append(_allow("Role", "sts", ("AssumeRole",), role_arn))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(
    sid: str, service: str, actions: tuple[str, ...], resource: str
) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in actions],
        "Resource": resource,
    }
