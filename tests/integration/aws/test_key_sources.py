"""Test that no call fails while a source of keys fails, whatever kind of source."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from aiobotocore.credentials import AioAssumeRoleProvider, AioSSOProvider
from aiobotocore.session import AioSession
from botocore.credentials import CredentialProvider

from tests.support.aws_keys import (
    EXPIRED,
    LIFETIME,
    ROLE,
    calling,
    refused,
    until,
)
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

SSO, AGENT = "/federation/credentials", "/agent"
START_URL = "https://company.awsapps.com/start"


Profiles = Callable[[str], object]


def keys_for(seconds: float) -> dict[str, str]:
    """Return keys as the agent of a container, or a process, gives them."""
    return {
        "AccessKeyId": "KEY1",
        "SecretAccessKey": "secret",
        "Token": "token",
        "SessionToken": "token",
        "Expiration": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
    }


def put_first(session: AioSession, provider: CredentialProvider) -> None:
    """Let a session ask a provider in place of its own of the same kind."""
    chain = session.get_component("credential_provider")
    chain.insert_before(provider.METHOD, provider)


async def check_failing_renewal(
    aws: AwsStub, fail: Callable[[], object], session: AioSession | None = None
) -> None:
    """Check that no call fails although a source of keys for 1,000 s fails."""
    async with calling(aws, session=session) as call:
        await call()
        fail()
        call.seconds.now += 550
        await until(lambda: call.reports, call)
    assert "could not be renewed" in call.reports[0]
    assert set(aws.keys("GetRecords")) == {"KEY1"}


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_an_agent_of_a_container_may_fail(
    aws: AwsStub, profiles: Profiles, environment: pytest.MonkeyPatch, status: int
) -> None:
    environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}{AGENT}")
    environment.setattr("aiobotocore.utils.AioContainerMetadataFetcher.SLEEP_TIME", 0)
    aws.answer(AGENT, keys_for(1000))

    def fail() -> None:
        aws.forget(AGENT)
        aws.answer_raw(AGENT, b"<html>sorry</html>", status)

    await check_failing_renewal(aws, fail)


@pytest.mark.parametrize(
    "program", ["print()", "exit(1)", "print([])", "print('{}')", "print('{')"]
)
async def test_a_process_that_gives_keys_may_fail(
    aws: AwsStub, profiles: Profiles, tmp_path: Path, program: str
) -> None:
    script = tmp_path / "keys.py"
    script.write_text(f"print({json.dumps({'Version': 1, **keys_for(1000)})!r})")
    profiles(f"[default]\ncredential_process={sys.executable} {script}")
    await check_failing_renewal(aws, lambda: script.write_text(program))


async def test_a_login_of_sso_may_run_out(aws: AwsStub, profiles: Profiles) -> None:
    profiles(
        f"[default]\nsso_start_url={START_URL}\nsso_region=eu-west-1\n"
        "sso_account_id=123456789012\nsso_role_name=Developer\n",
    )
    name = hashlib.sha1(START_URL.encode(), usedforsecurity=False).hexdigest()
    tokens: dict[str, dict[str, str]] = {}

    def log_in(seconds: float) -> None:
        expires = keys_for(seconds)["Expiration"]
        tokens[name] = {"accessToken": "a", "expiresAt": expires}

    keys = {
        "accessKeyId": "KEY1",
        "secretAccessKey": "secret",
        "sessionToken": "token",
        "expiration": int((time.time() + LIFETIME) * 1000),
    }
    aws.answer(SSO, {"roleCredentials": keys})
    log_in(1000)
    session = AioSession()
    provider = AioSSOProvider(
        lambda: session.full_config, session.create_client, "default", None, tokens
    )
    put_first(session, provider)
    await check_failing_renewal(aws, lambda: log_in(-1), session)


async def test_a_code_of_mfa_is_asked_for_only_once(
    aws: AwsStub, profiles: Profiles
) -> None:
    """Nobody could enter it in the middle of the night."""
    asked = Mock(return_value="123456")
    aws.assume_role(LIFETIME)
    profiles(
        "[default]\naws_access_key_id=A\naws_secret_access_key=secret\n"
        f"[profile x]\nrole_arn={ROLE}\nsource_profile=default\n"
        "mfa_serial=arn:aws:iam::123456789012:mfa/me\n",
    )
    session = AioSession(profile="x")
    provider = AioAssumeRoleProvider(
        lambda: session.full_config, session.create_client, {}, "x", asked
    )
    put_first(session, provider)
    async with calling(aws, session=session) as call:
        await call()
        call.seconds.now += 550
        await until(lambda: call.reports, call)
        aws.refused_keys["ROLE1"] = EXPIRED
        call.seconds.now += 550
        await refused(call)
    assert "MFA" in call.reports[0]
    assert asked.call_count == 1


STS_ERRORS = [
    ("InvalidIdentityToken", 400),
    ("IDPCommunicationError", 400),
    ("AccessDenied", 403),
    ("ExpiredTokenException", 400),
    ("IDPRejectedClaim", 403),
    ("InternalFailure", 500),
    ("Anything", 418),
]


WEB = "AssumeRoleWithWebIdentity"


@pytest.fixture
def pod(
    environment: pytest.MonkeyPatch, aws: AwsStub, profiles: Profiles, tmp_path: Path
) -> None:
    """Be a pod in Kubernetes, with a token and a role that has keys for 1,000 s."""
    token = tmp_path / "token"
    token.write_text("a.web.token")
    environment.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    environment.setenv("AWS_ROLE_ARN", ROLE)
    aws.assume_role(LIFETIME, WEB)


@pytest.mark.parametrize(("code", "status"), STS_ERRORS)
async def test_no_call_fails_while_sts_refuses_to_renew_keys_that_are_valid(
    aws: AwsStub, pod: None, code: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(aws) as call:
        await call()
        aws.forget(WEB)
        aws.refuse_role(code, "no", status, WEB)
        for _ in range(3):
            call.seconds.now += 200
            await call()
        await until(lambda: call.reports, call)
        assert "could not be renewed" in call.reports[0]
        assert code in call.reports[0]
        aws.forget(WEB)
        aws.assume_role(LIFETIME, WEB)
        call.seconds.now += 31
        await until(lambda: len(set(aws.keys("GetRecords"))) == 2, call)
    assert call.reports[-1] == ""
    assert "the keys in use expire in" in caplog.text


async def test_calls_wait_for_keys_when_those_in_use_have_expired(
    aws: AwsStub, pod: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(aws) as call:
        await call()
        aws.forget(WEB)
        aws.refuse_role("IDPCommunicationError", "no answer", 400, WEB)
        [key] = aws.keys("GetRecords")
        aws.refused_keys[key] = EXPIRED
        call.seconds.now += 1100
        for _ in range(3):
            call.seconds.now += 31
            error = str(await refused(call))
        assert "IDPCommunicationError: no answer" in error
        assert "for 62 s" in error
        aws.forget(WEB)
        aws.assume_role(LIFETIME, WEB)
        call.seconds.now += 31
        await call()
    assert "work again" in caplog.text
