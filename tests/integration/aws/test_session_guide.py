"""Run the guide's program: an aioboto3 session with SSO and a chain of two roles."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from kinesumer.testing import EmbeddedAws
from tests.support.aws_stub import AwsStub
from tests.support.clock import PATIENCE_SECONDS

GUIDE = Path(__file__).parents[3] / "examples" / "session"
ACCOUNT, OTHER = "123456789012", "210987654321"
REGION = "eu-west-1"
HOUR = 3600

pytestmark = [pytest.mark.pinned, pytest.mark.process]


def log_in(home: Path) -> None:
    """Leave behind what ``aws sso login`` does: a configuration, and a token."""
    cache = home / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    (home / ".aws" / "config").write_text((GUIDE / "config").read_text())
    name = hashlib.sha1(b"company", usedforsecurity=False).hexdigest()
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + HOUR))
    token = {"accessToken": "logged-in", "expiresAt": later}
    (cache / f"{name}.json").write_text(json.dumps(token))


def test_a_profile_with_sso_and_a_role_reads_the_stream_of_another_account(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    pytest.importorskip("aioboto3", reason="only with the aioboto3 extra")
    kinesumer_aws.create_table(account=ACCOUNT, region=REGION)
    kinesumer_aws.create_role("billing", account=ACCOUNT, trusted=[ACCOUNT])
    kinesumer_aws.create_role("reader", account=OTHER, trusted=[ACCOUNT])
    for stream, account in (("orders", ACCOUNT), ("payments", OTHER)):
        arn = kinesumer_aws.create_stream(stream, account=account, region=REGION)
        kinesumer_aws.put(arn, b"one", "key")
    log_in(tmp_path)
    # A variable would take precedence over the profile.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") or name.startswith("AWS_ENDPOINT_URL")
    }
    developer = kinesumer_aws.account(ACCOUNT)
    keys = {
        "accessKeyId": developer.access_key_id,
        "secretAccessKey": developer.secret_access_key,
        "sessionToken": "",
        "expiration": int(time.time() + HOUR) * 1000,
    }
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(AwsStub()) as sso,
    ):
        sso.answer("/federation/credentials", {"roleCredentials": keys})
        environment |= {"HOME": str(tmp_path), "AWS_ENDPOINT_URL_SSO": sso.url}
        process = subprocess.Popen(
            [sys.executable, GUIDE / "consume.py", "billing"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            seen = {process.stdout.readline() for _ in range(2)}
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, errors
            assert seen == {"orders one\n", "payments one\n"}
        finally:
            process.kill()
            process.communicate()
    assert {seen.body["account_id"] for seen in sso.seen} == {ACCOUNT}
    tokens = {seen.headers["x-amz-sso_bearer_token"] for seen in sso.seen}
    assert tokens == {"logged-in"}
