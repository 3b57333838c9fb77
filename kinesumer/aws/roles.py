"""Get keys by assuming a role, or from the environment.

If a few variables of the environment say all about calls to AWS, botocore would decide
the same. But it takes 0.3 s of CPU time to import it, aiobotocore and aiohttp in each
of the processes that Spark starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

from botocore.exceptions import CredentialRetrievalError

from kinesumer.aws.credentials import FrozenCredentials, Keys, KeyUse
from kinesumer.aws.errors import call_errors
from kinesumer.errors import SourceUnavailableError
from kinesumer.runtime.text import SECRETS

# If the local clock is off by more than this, the service's time is used.
# The service's time has whole seconds, and the answer takes up to another one.
DATE_SECONDS = 2.0


class Role(NamedTuple):
    """A role to assume, with the arguments of AssumeRole."""

    arn: str
    session_name: str
    external_id: str | None = None

    @property
    def account(self) -> str:
        """The account that the role belongs to."""
        return self.arn.split(":")[4]

    def __repr__(self) -> str:
        """Omit the external id, since error reports may contain local variables."""
        return f"Role(arn={self.arn!r}, session_name={self.session_name!r}, …)"


class RoleKeys:
    """The keys of a role, which ``sts`` opens a client to assume."""

    method = "assume-role"

    def __init__(
        self,
        role: Role,
        sts: Callable[[], AbstractAsyncContextManager[Any]],
        use: KeyUse,
    ) -> None:
        self._role, self._sts, self._use = role, sts, use

    async def fetch(self) -> Keys:
        """Assume the role. Raise SourceUnavailableError, or say what is wrong."""
        role = self._role
        arguments = {"RoleArn": role.arn, "RoleSessionName": role.session_name}
        if role.external_id is not None:
            arguments["ExternalId"] = role.external_id
            SECRETS.add(role.external_id)
        with call_errors(
            "sts:AssumeRole",
            role.arn,
            SourceUnavailableError,
            self._use,
            _denial_advice(role),
        ):
            async with self._sts() as sts:
                answer = await sts.assume_role(**arguments)
            return _keys(answer, role)


def _denial_advice(role: Role) -> str:
    """Return what to do if STS denies the role. STS doesn't say which part is wrong."""
    external_id = (
        "no external id was given: give the one that the role's trust policy requires"
        if role.external_id is None
        else "check the given external id against the role's trust policy"
    )
    return (
        f"{external_id}; allow sts:AssumeRole on it for the credentials in use, and "
        "trust them in the role's trust policy"
    )


def _keys(answer: Mapping[str, Any], role: Role) -> Keys:
    keys = answer["Credentials"]
    return Keys(
        FrozenCredentials(
            keys["AccessKeyId"],
            keys["SecretAccessKey"],
            keys["SessionToken"],
            role.account,
        ),
        _lifetime(answer),
    )


def _lifetime(answer: Mapping[str, Any]) -> float:
    """Return for how many seconds the keys stay valid.

    If the local clock is wrong, use the service's time instead.
    """
    expires: datetime = answer["Credentials"]["Expiration"]
    now = datetime.now(UTC)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    if date is not None:
        theirs = parsedate_to_datetime(date)
        # The Date header has only whole seconds, so a local clock that is almost right
        # is more precise.
        if abs((now - theirs).total_seconds()) > DATE_SECONDS:
            now = theirs
    return (expires - now).total_seconds()


ID, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
# The variables of AWS that are read here or in Spark's options, and those that change
# neither the keys nor a call. With another one, botocore decides.
_KNOWN = re.compile(
    f"{ID}|{SECRET}|{TOKEN}|AWS_REGION|AWS_DEFAULT_REGION|AWS_ENDPOINT_URL(_[A-Z]+)?|"
    "AWS_CA_BUNDLE|AWS_EC2_METADATA_DISABLED|AWS_EXECUTION_ENV"
)
# Other variables that change how botocore sends a call.
_OTHERS = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_FILES = ("~/.aws/config", "~/.aws/credentials")


def environment_keys(environ: Mapping[str, str] = os.environ) -> EnvironmentKeys | None:
    """Return the source of the environment's keys, or None if botocore must decide."""
    if not (environ.get(ID) and environ.get(SECRET)):
        return None
    for name in map(str.upper, environ):
        if name in _OTHERS or (name.startswith("AWS_") and not _KNOWN.fullmatch(name)):
            return None
    # Path.expanduser() fails for a user without a home directory.
    if any(Path(os.path.expanduser(file)).exists() for file in _FILES):
        return None
    return EnvironmentKeys(environ)


class EnvironmentKeys:
    """The keys in the environment, where botocore looks for keys first."""

    method = "env"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def fetch(self) -> Keys:
        """Return the keys that the variables have now. Raise an error without keys."""
        key_id, secret = self._environ.get(ID), self._environ.get(SECRET)
        if not key_id or not secret:
            raise CredentialRetrievalError(
                provider=self.method, error_msg=f"{ID} or {SECRET} is not set any more"
            )
        token = self._environ.get(TOKEN) or None
        return Keys(FrozenCredentials(key_id, secret, token))
