"""Get schema versions from the AWS Glue Schema Registry."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import call_errors, failure_of, foreign
from kinesumer.errors import SchemaRegistryUnavailableError

# AWS evaluates this action on all resources, since the request names no registry.
ADVICE = "allow glue:GetSchemaVersion on resource * for the credentials in use"


class SchemaVersion(NamedTuple):
    """A schema version as Glue stores it."""

    definition: str
    data_format: str  # AVRO, JSON or PROTOBUF
    arn: str  # arn:aws:glue:REGION:ACCOUNT:schema/REGISTRY/NAME

    @property
    def registry(self) -> str:
        """The name of the schema's registry."""
        return self.arn.split("/")[1]


async def get_schema_version(opened: OpenClient, id: UUID) -> SchemaVersion | None:
    """Return a schema version, or None if the account and region do not have it.

    Raises SchemaRegistryUnavailableError if a retry may help, and FatalError otherwise.
    """
    client = opened.client
    with call_errors(
        "glue:GetSchemaVersion",
        f"schema version {id} in {client.meta.region_name}",
        SchemaRegistryUnavailableError,
        opened.keys,
        ADVICE,
    ):
        try:
            answer = await client.get_schema_version(SchemaVersionId=str(id))
        except foreign() as error:
            if failure_of(error).code == "EntityNotFoundException":
                return None
            raise
        version = SchemaVersion(
            answer["SchemaDefinition"], answer["DataFormat"], answer["SchemaArn"]
        )
        _ = version.registry  # raises IndexError for an ARN that AWS does not make
        return version
