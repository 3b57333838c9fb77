"""Test that our signatures equal those of botocore for the same request."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from unittest import mock

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.aws.credentials import FrozenCredentials
from kinesumer.aws.http.sigv4 import Destination, Signer

WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
KEYS = st.builds(
    FrozenCredentials, WORD.filter(lambda key: "," not in key), WORD, st.none() | WORD
)
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
HOSTS = st.one_of(
    st.lists(LABEL, min_size=1, max_size=4).map(".".join),
    st.lists(LABEL, min_size=1, max_size=4).map(".".join).map(str.upper),
    st.sampled_from(["127.0.0.1", "[::1]"]),
)
PORTS = st.sampled_from(["", ":80", ":443", ":4566"])
PATHS = st.sampled_from(["", "/", "/kinesis/", "/a/../b/", "/a//b/./", "/a b/ü~%20/"])
URLS = st.builds(
    "{}://{}{}{}".format, st.sampled_from(["http", "https"]), HOSTS, PORTS, PATHS
)
MOMENTS = st.integers(0, int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()))


def of_botocore(
    destination: Destination,
    keys: FrozenCredentials,
    sent: dict[str, str],
    body: bytes,
    now: int,
) -> str:
    """Return the Authorization header that botocore creates for a request."""
    headers = {
        name: value
        for name, value in sent.items()
        if name in ("content-type", "x-amz-target")
    }
    request = AWSRequest("POST", destination.url, headers=headers, data=body)
    moment = datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
    judge = SigV4Auth(keys, destination.service, destination.region)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        judge.add_auth(request)
    return str(request.headers["Authorization"])


@settings(max_examples=40)
@given(URLS, LABEL, LABEL, st.lists(st.tuples(KEYS, MOMENTS, st.binary()), min_size=1))
def test_signatures_are_those_of_botocore_whatever_changes_between_requests(
    url: str,
    region: str,
    service: str,
    requests: list[tuple[FrozenCredentials, int, bytes]],
) -> None:
    destination = Destination(url, region, service)
    signer = Signer(destination)
    for keys, now, body in requests:
        headers = signer.headers(keys, "Kinesis_20131202.GetRecords", body, now)
        expected = of_botocore(destination, keys, headers, body, now)
        assert headers["authorization"] == expected
        assert headers.get("x-amz-security-token") == keys.token


def test_the_key_is_derived_anew_when_the_day_or_the_secret_changes() -> None:
    signer = Signer(Destination("https://x.example/", "eu-west-1", "kinesis"))
    midnight = int(time.time()) // 86400 * 86400
    one, other = FrozenCredentials("A", "one"), FrozenCredentials("A", "other")
    signatures = {
        signer.headers(keys, "t", b"", now)["authorization"][-64:]
        for keys in (one, other, one)
        for now in (midnight - 1, midnight, midnight - 1)
    }
    assert len(signatures) == 4
