"""Test that the documented policy suffices for Glue's schemas, and that it is needed.

moto's server enforces the policy of ``schema/iam/schema-registry.json``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from botocore.session import get_session
from moto import settings

from kinesumer import FatalError
from kinesumer.schemas import GlueDecoder
from kinesumer.testing import record
from tests.support.glue_registry import glue_data, serve_glue_registry
from tests.system.security.documents import document


@contextmanager
def enforced_policies() -> Iterator[None]:
    """Let moto enforce policies for the block only. It denies the administrator too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        yield


async def decoded(id: UUID) -> object:
    decode = GlueDecoder()
    value = decode(record(glue_data(id, b"5")))
    return await value if inspect.isawaitable(value) else value


async def test_schemas_are_read_with_exactly_their_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve_glue_registry() as registry:
        for name, value in {
            "AWS_ENDPOINT_URL": registry.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "administrator",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }.items():
            monkeypatch.setenv(name, value)
        id = registry.register("JSON", "{}")
        iam = get_session().create_client("iam")
        # Not "client": moto keeps the users of other tests of this process.
        user = {"UserName": "schema-client"}
        iam.create_user(**user)
        key = iam.create_access_key(**user)["AccessKey"]
        policy = {**user, "PolicyName": "schema-registry"}
        text = json.dumps(document("schema-registry"))
        iam.put_user_policy(**policy, PolicyDocument=text)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        with enforced_policies():
            assert await decoded(id) == 5
        iam.delete_user_policy(**policy)
        # moto denies calls of Glue in a format that SDKs don't expect, so the error
        # isn't an AccessDeniedError.
        with (
            enforced_policies(),
            pytest.raises(FatalError, match="authorized to perform: glue:GetSchema"),
        ):
            await decoded(id)
