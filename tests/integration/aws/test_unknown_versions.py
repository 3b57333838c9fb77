"""Test that what unknown versions of aiobotocore and asyncio lack is done without."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiobotocore.session import AioSession

from kinesumer.aws.http import client as direct
from kinesumer.aws.http.connection import RECEIVE_BYTES, share_buffer
from kinesumer.aws.kinesis import KinesisSource
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import StreamName
from tests.support.aws_keys import EMPTY
from tests.support.aws_stub import AwsStub
from tests.support.tls_front import tls_front

pytestmark = pytest.mark.pinned


class Renamed:
    """Part of an AWS client in which the last attribute of a path has another name.

    The path passes over calls.
    """

    def __init__(self, part: Any, missing: str) -> None:
        self._part, self._missing = part, missing

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance()
        return type(self._part)

    def __getattr__(self, name: str) -> Any:
        first, _, rest = self._missing.partition(".")
        if name != first:
            return getattr(self._part, name)
        if not rest:
            raise AttributeError(f"no attribute {name!r}")
        return Renamed(getattr(self._part, name), rest)

    async def __call__(self, *arguments: object) -> Renamed:
        return Renamed(await self._part(*arguments), self._missing)


@pytest.mark.parametrize(
    "missing",
    [
        "generate_presigned_url",
        "meta.events._emitter",
        "meta.events._emitter._handlers",
        "_endpoint",
        "_endpoint.http_session",
        "_endpoint.http_session._get_session",
        "_endpoint.http_session._get_session.connector",
        "_endpoint.http_session._get_session.connector._ssl",
    ],
)
async def test_what_an_unknown_version_lacks_is_no_fault_of_the_endpoint(
    aws: AwsStub,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    missing: str,
) -> None:
    direct._warn.cache_clear()
    aws.answer("GetRecords", EMPTY)
    async with tls_front(aws.url, tmp_path) as front:
        environment.setenv("AWS_ENDPOINT_URL", front.url)
        environment.setenv("AWS_CA_BUNDLE", str(front.authority))
        session = AioSession()
        session.set_credentials("THEIRS", "secret")
        async with ClientFactory(session) as clients:
            opened = await clients.open("kinesis")
            opened = opened._replace(client=Renamed(opened.client, missing))
            for name in ("orders", "others"):
                source = KinesisSource(opened, StreamName(name))
                for _ in range(2):
                    page = await source.get_records("s x", 10)
                    assert page.next_iterator == "s y"
    assert caplog.text.count("called through aiobotocore") == 1
    assert f"no attribute {missing.rpartition('.')[2]!r}" in caplog.text


@pytest.mark.parametrize(
    "missing", ["_ssl_protocol", "_ssl_buffer", "_ssl_buffer_view"]
)
def test_a_buffer_that_an_unknown_asyncio_has_elsewhere_is_kept(missing: str) -> None:
    protocol = SimpleNamespace(_ssl_buffer=b"own", _ssl_buffer_view=memoryview(b"own"))
    transport: Any = SimpleNamespace(_ssl_protocol=protocol)
    delattr(protocol if hasattr(protocol, missing) else transport, missing)
    before = {**vars(protocol)}
    share_buffer(transport, bytearray(RECEIVE_BYTES))
    assert vars(protocol) == before
