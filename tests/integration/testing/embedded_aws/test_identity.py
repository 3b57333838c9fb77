"""Test which calls accounts, roles and permissions allow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from aiobotocore.config import AioConfig
from botocore import UNSIGNED

from kinesumer.errors import ConfigurationError
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.identity import Credentials, Role
from kinesumer.wire.rows import DEFINITION
from tests.integration.testing.embedded_aws.conftest import refused

OTHER = "111122223333"


async def assume(connect: Any, role: Role) -> Credentials:
    """Return credentials of a role, assumed by the default account."""
    answer = await (await connect("sts")).assume_role(
        RoleArn=role.arn, RoleSessionName="billing"
    )
    keys = answer["Credentials"]
    return Credentials(
        keys["AccessKeyId"],
        keys["SecretAccessKey"],
        OTHER,
        answer["AssumedRoleUser"]["Arn"],
        keys["SessionToken"],
        keys["Expiration"].timestamp(),
    )


async def test_each_key_belongs_to_its_account(aws: EmbeddedAws, connect: Any) -> None:
    mine = await (await connect("sts")).get_caller_identity()
    theirs = await (await connect("sts", aws.account(OTHER))).get_caller_identity()
    assert mine["Account"] == "000000000000"
    assert theirs["Account"] == OTHER
    assert mine["Arn"] == "arn:aws:iam::000000000000:user/kinesumer"


async def test_unknown_keys_are_refused_by_every_service(
    aws: EmbeddedAws, connect: Any
) -> None:
    unknown = Credentials("AKIANOBODY", "secret", "", "")
    for service, call, code, status in (
        ("kinesis", "list_streams", "UnrecognizedClientException", 400),
        ("dynamodb", "list_tables", "UnrecognizedClientException", 400),
        ("sts", "get_caller_identity", "InvalidClientTokenId", 403),
    ):
        client = await connect(service, unknown)
        answer = await refused(getattr(client, call)())
        assert (answer.code, answer.status) == (code, status)


async def test_another_accounts_stream_is_denied_naming_action_and_resource(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    arn = aws.create_stream("orders", account=OTHER)
    answer = await refused(kinesis.list_shards(StreamARN=arn))
    assert answer.code == "AccessDeniedException"
    assert answer.message.startswith(
        "User: arn:aws:iam::000000000000:user/kinesumer is not authorized to perform: "
        f"kinesis:ListShards on resource: {arn} because"
    )


async def test_a_role_lets_in_only_whom_it_trusts(
    aws: EmbeddedAws, connect: Any
) -> None:
    role = aws.create_role("reader", account=OTHER, external_id="secret")
    sts = await connect("sts")
    for which in ({}, {"ExternalId": "wrong"}):
        call = sts.assume_role(RoleArn=role.arn, RoleSessionName="billing", **which)
        answer = await refused(call)
        assert (answer.code, answer.status) == ("AccessDenied", 403)
        assert f"sts:AssumeRole on resource: {role.arn}" in answer.message
    await sts.assume_role(
        RoleArn=role.arn, RoleSessionName="billing", ExternalId="secret"
    )
    stranger = await connect("sts", aws.account("999999999999"))
    call = stranger.assume_role(
        RoleArn=role.arn, RoleSessionName="billing", ExternalId="secret"
    )
    assert (await refused(call)).code == "AccessDenied"
    call = sts.assume_role(RoleArn=role.arn + "x", RoleSessionName="billing")
    assert (await refused(call)).code == "AccessDenied"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"trusted": "000000000000"}, "trusted='000000000000' isn't a list"),
        ({"trusted": ["reader"]}, "trusted contains 'reader'"),
        ({"actions": "kinesis:*"}, r"actions='kinesis:\*' isn't a list"),
        ({"external_id": "x"}, "external_id='x' is not what STS takes"),
        ({"external_id": "an id"}, "external_id='an id' is not what STS takes"),
    ],
)
def test_a_role_that_aws_would_not_take_is_refused(
    wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        EmbeddedAws().create_role("reader", account=OTHER, **wrong)


async def test_temporary_credentials_expire(aws: EmbeddedAws, connect: Any) -> None:
    role = aws.create_role("reader", account=OTHER, session_seconds=3)
    keys = await assume(connect, role)
    assert keys.arn == f"arn:aws:sts::{OTHER}:assumed-role/reader/billing"
    assert keys.expires_at is not None
    assert abs(keys.expires_at - aws._state.clock.now() - 3) < 0.01
    kinesis = await connect("kinesis", keys)
    sts = await connect("sts", keys)
    await kinesis.list_streams()
    aws.advance(3)
    assert (await refused(kinesis.list_streams())).code == "ExpiredTokenException"
    assert (await refused(sts.get_caller_identity())).code == "ExpiredToken"


async def test_temporary_credentials_need_their_token(
    aws: EmbeddedAws, connect: Any
) -> None:
    role = aws.create_role("reader", account=OTHER)
    keys = await assume(connect, role)
    for token in (None, "another"):
        bare = keys._replace(session_token=token)
        call = (await connect("kinesis", bare)).list_streams()
        assert (await refused(call)).code == "UnrecognizedClientException"


async def test_a_token_of_a_provider_that_a_role_trusts_assumes_it(
    aws: EmbeddedAws, session: Any
) -> None:
    """A pod in Kubernetes has a token, and no keys with which to sign."""
    provider = f"arn:aws:iam::{OTHER}:oidc-provider/cluster"
    role = aws.create_role("pod", account=OTHER, trusted=[provider])
    stranger = aws.create_role("stranger", account=OTHER)
    names = {"RoleSessionName": "billing", "WebIdentityToken": "token"}
    client = session.create_client(
        "sts",
        region_name="us-east-1",
        endpoint_url=aws.url,
        config=AioConfig(signature_version=UNSIGNED, retries={"total_max_attempts": 1}),
    )
    async with client as sts:
        assume = sts.assume_role_with_web_identity
        answer = await assume(RoleArn=role.arn, **names)
        assert answer["Credentials"]["AccessKeyId"].startswith("ASIA")
        denied = await refused(assume(RoleArn=stranger.arn, **names))
        assert denied.code == "AccessDenied"
        aws.fault("error", service="sts", code="IDPCommunicationError", count=1)
        failed = await refused(assume(RoleArn=role.arn, **names))
        assert failed.code == "IDPCommunicationError"
        await assume(RoleArn=role.arn, **names)


async def test_single_actions_can_be_denied_and_allowed_again(
    aws: EmbeddedAws, kinesis: Any, dynamodb: Any
) -> None:
    arn = aws.create_stream("orders")
    aws.create_stream("other")
    aws.create_table("table")
    aws.deny("kinesis:ListShards", arn)
    aws.deny("dynamodb:DescribeTable")
    answer = await refused(kinesis.list_shards(StreamName="orders"))
    assert "kinesis:ListShards on resource: " + arn in answer.message
    await kinesis.list_shards(StreamName="other")
    answer = await refused(dynamodb.describe_table(TableName="table"))
    assert (answer.code, answer.status) == ("AccessDeniedException", 400)
    assert "dynamodb:DescribeTable on resource: arn:aws:dynamodb:" in answer.message
    aws.allow()
    await kinesis.list_shards(StreamName="orders")
    await dynamodb.describe_table(TableName="table")


async def test_a_policy_permits_only_rows_with_its_partition_keys(
    aws: EmbeddedAws, dynamodb: Any
) -> None:
    aws.create_table("table")
    keys = {"dynamodb:LeadingKeys": ["member#a", "shard#a#*"]}
    document = policy("dynamodb:*", "*")
    document["Statement"][0]["Condition"] = {"ForAllValues:StringLike": keys}
    aws.restrict(document)
    await dynamodb.describe_table(TableName="table")

    def calls(pk: str) -> list[Any]:
        key = {"pk": {"S": pk}, "sk": {"S": "x"}}
        values = {":pk": {"S": pk}, ":sk": {"S": "pk"}}
        return [
            dynamodb.get_item(TableName="table", Key=key),
            dynamodb.put_item(TableName="table", Item=key),
            dynamodb.update_item(
                TableName="table",
                Key=key,
                UpdateExpression="SET a = :a",
                ExpressionAttributeValues={":a": {"S": "b"}},
            ),
            dynamodb.delete_item(TableName="table", Key=key),
            dynamodb.query(
                TableName="table",
                KeyConditionExpression="pk = :pk AND sk >= :sk",
                ExpressionAttributeValues=values,
            ),
            dynamodb.query(
                TableName="table",
                KeyConditionExpression="#0 = :pk",
                ExpressionAttributeNames={"#0": "pk"},
                ExpressionAttributeValues={":pk": {"S": pk}},
            ),
        ]

    for pk in ("member#a", "shard#a#orders"):
        for call in calls(pk):
            await call
    for pk in ("member#b", "member#a2", "shard#ab#orders", "shard#a"):
        for call in calls(pk):
            assert (await refused(call)).code == "AccessDeniedException"


async def test_callers_with_a_policy_may_do_what_it_allows_where_it_allows_it(
    aws: EmbeddedAws, kinesis: Any, dynamodb: Any
) -> None:
    arn = aws.create_stream("orders")
    aws.create_stream("other")
    aws.create_table("table")
    aws.restrict(policy("kinesis:List*", arn), caller="*:user/kinesumer")
    aws.restrict(policy("kinesis:*", "*"), caller="*:user/somebody")
    await kinesis.list_shards(StreamName="orders")
    answer = await refused(kinesis.list_shards(StreamName="other"))
    assert answer.message.endswith(
        "because no identity-based policy allows the kinesis:ListShards action"
    )
    call = kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    assert (await refused(call)).code == "AccessDeniedException"
    assert "dynamodb:ListTables" in (await refused(dynamodb.list_tables())).message
    aws.restrict(policy(["kinesis:PutRecord", "dynamodb:ListTables"], ["*"]))
    await kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    await dynamodb.list_tables()
    aws.allow()
    await kinesis.list_shards(StreamName="other")


async def test_a_batch_needs_its_action_on_each_table_and_a_transaction_its_parts(
    aws: EmbeddedAws, dynamodb: Any
) -> None:
    row = {"pk": {"S": "a"}, "sk": {"S": "x"}}
    arns = {name: table_arn(aws, name) for name in ("mine", "theirs")}
    put = {"PutRequest": {"Item": row}}

    def batch(*tables: str) -> Any:
        return dynamodb.batch_write_item(RequestItems={name: [put] for name in tables})

    def transaction(**parts: str) -> Any:
        items = {"Put": {"Item": row}, "Delete": {"Key": row}}
        return dynamodb.transact_write_items(
            TransactItems=[
                {kind: {"TableName": table, **items[kind]}}
                for kind, table in parts.items()
            ]
        )

    aws.restrict(policy(["dynamodb:BatchWriteItem", "dynamodb:PutItem"], arns["mine"]))
    await batch("mine")
    await transaction(Put="mine")
    for call in (batch("mine", "theirs"), transaction(Put="theirs")):
        assert arns["theirs"] in (await refused(call)).message
    answer = await refused(transaction(Delete="mine"))
    assert f"dynamodb:DeleteItem on resource: {arns['mine']}" in answer.message


def table_arn(aws: EmbeddedAws, name: str) -> str:
    """Create a table, and return its ARN."""
    aws.create_table(name)
    return f"arn:aws:dynamodb:us-east-1:{aws.account().account}:table/{name}"


@pytest.mark.parametrize("more", [{"Effect": "Deny"}, {"Condition": {}}])
def test_a_policy_that_says_more_than_is_enforced_is_refused(
    more: dict[str, object],
) -> None:
    document = policy("kinesis:*", "*")
    document["Statement"][0].update(more)
    with pytest.raises(msgspec.ValidationError):
        EmbeddedAws().restrict(document)


def policy(action: object, resource: object) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    return {"Version": "2012-10-17", "Statement": [statement]}


async def test_tags_at_creation_need_their_own_permission(
    aws: EmbeddedAws, kinesis: Any, connect: Any
) -> None:
    arn = aws.create_stream("payments")
    aws.deny("kinesis:AddTagsToStream")
    aws.deny("*:TagResource")
    await kinesis.create_stream(StreamName="orders", ShardCount=1)
    call = kinesis.create_stream(StreamName="clicks", ShardCount=1, Tags={"a": "1"})
    assert "kinesis:AddTagsToStream" in (await refused(call)).message
    consumer = {"StreamARN": arn, "ConsumerName": "billing"}
    call = kinesis.register_stream_consumer(**consumer, Tags={"a": "1"})
    assert "kinesis:TagResource" in (await refused(call)).message
    aws.advance(1)
    await kinesis.register_stream_consumer(**consumer)
    dynamodb = await connect("dynamodb")
    tags = [{"Key": "a", "Value": "1"}]
    call = dynamodb.create_table(TableName="state", Tags=tags, **DEFINITION)
    assert "dynamodb:TagResource" in (await refused(call)).message
