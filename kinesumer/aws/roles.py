"""Get keys by assuming a role."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.aws.credentials import FrozenCredentials, Keys
from kinesumer.aws.errors import call_errors
from kinesumer.errors import SourceUnavailableError
from kinesumer.runtime.secrets import SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from kinesumer.aws.key_use import KeyUse

# If the local clock is off by more than this, the service's time is used.
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
