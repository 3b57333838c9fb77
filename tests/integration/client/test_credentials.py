"""Test that clients and producers outlive their credentials, on the embedded AWS."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession

from kinesumer import Config, Kinesumer, Start, blocking
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.identity import DEFAULT_ACCOUNT
from tests.support.aws_keys import KeyFile
from tests.support.clock import until

pytestmark = pytest.mark.usefixtures("nobody_else_joins")

QUICK = Config(
    heartbeat_interval_seconds=0.2,
    lease_duration_seconds=2.0,
    rebalance_delay_seconds=0.1,
    leader_interval_seconds=0.1,
)
PROVIDER = f"arn:aws:iam::{DEFAULT_ACCOUNT}:oidc-provider/cluster"


@pytest.fixture
def file(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KeyFile:
    """Let all clients use a shared credentials file."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    return KeyFile(kinesumer_aws, path)


@pytest.fixture
def pod(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedAws:
    """Let all clients assume a role with a token, as a pod in Kubernetes does."""
    role = kinesumer_aws.create_role(
        "pod", account=DEFAULT_ACCOUNT, trusted=(PROVIDER,), session_seconds=4
    )
    token = tmp_path / "token"
    token.write_text("a.web.token")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", role.arn)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return kinesumer_aws


async def read(aws: EmbeddedAws, client: Kinesumer, changes: dict[int, Any]) -> None:
    """Read 20 records, one at a time. Make a change before some of them are put."""
    aws.put("orders", b"0", "key")
    number = 0
    async for record in client.consume("orders", start=Start.TRIM_HORIZON):
        assert record.data == b"%d" % number
        number += 1
        if number == 20:
            return
        if number in changes:
            changes[number]()
        aws.put("orders", b"%d" % number, "key")


@pytest.mark.parametrize("late_seconds", [0.0, 1.5])
async def test_a_client_reads_on_while_its_keys_are_replaced(
    kinesumer_aws: EmbeddedAws,
    file: KeyFile,
    late_seconds: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The lease is longer than the time without keys, so nothing is repeated."""
    kinesumer_aws.create_stream("orders")
    timers: list[threading.Timer] = []

    def rotate() -> None:
        timers.append(file.rotate(late_seconds))

    async with asyncio.timeout(60), Kinesumer("app", config=QUICK) as client:
        await read(kinesumer_aws, client, {6: rotate, 13: rotate})
    assert len(timers) == 2
    assert ("AWS has refused the credentials" in caplog.text) is (late_seconds > 0)


async def test_a_client_outlives_a_long_time_without_keys(
    kinesumer_aws: EmbeddedAws, file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease runs out meanwhile, so the client registers again."""
    kinesumer_aws.create_stream("orders")
    async with asyncio.timeout(90), Kinesumer("app", config=QUICK) as client:
        changes = {10: lambda: file.rotate(5.0)}
        await read(kinesumer_aws, client, changes)
    assert "The client can't renew its AWS credentials" in caplog.text
    assert "the incident 'credentials' is over" in caplog.text


async def test_a_failed_renewal_is_shown_while_the_keys_are_valid(
    pod: EmbeddedAws, caplog: pytest.LogCaptureFixture
) -> None:
    pod.create_stream("orders")
    shown: list[str] = []

    def look() -> list[str]:
        rows = pod.dynamodb("Scan", b'{"TableName": "kinesumer-state-store"}')["Items"]
        shown.extend(row["incidents"]["S"] for row in rows if "incidents" in row)
        return shown

    async with asyncio.timeout(60), Kinesumer("app", config=QUICK) as client:
        await read(pod, client, {})
        pod.fault("error", service="sts", code="IDPCommunicationError", count=2)
        await until(lambda: "could not be renewed" in caplog.text)
        await until(look)
        await until(lambda: "work again" in caplog.text)
    assert "credentials" in shown[0]
    assert not [entry for entry in pod.journal.latest if entry.error == "ExpiredToken"]


def test_blocking_clients_share_a_session_whose_keys_are_renewed_again_and_again(
    pod: EmbeddedAws,
) -> None:
    """Each blocking client has an event loop of its own."""
    pod.create_stream("orders", shards=2)
    session = AioSession()
    stop = threading.Event()
    errors: list[BaseException] = []
    counts = [0, 0, 0]

    def consume(place: int) -> None:
        try:
            client = blocking.Kinesumer(f"app-{place}", config=QUICK, session=session)
            with client:
                for _ in client.consume("orders", start=Start.TRIM_HORIZON):
                    counts[place] += 1
                    if stop.is_set():
                        return
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=consume, args=[place]) for place in range(3)]
    for thread in threads:
        thread.start()
    pod.fault("error", service="sts", code="InvalidIdentityToken", probability=0.3)
    end = time.monotonic() + 12
    while time.monotonic() < end and not errors:
        pod.put("orders", b"x", str(time.monotonic()))
        time.sleep(0.05)
    pod.clear_faults()
    stop.set()
    for _ in threads:
        pod.put("orders", b"x", "last")
    for thread in threads:
        thread.join(30)
    assert not errors
    assert min(counts) > 50
    assert pod.journal.count("sts", "AssumeRoleWithWebIdentity") > 9
