"""Who is calling: accounts, roles, temporary credentials and what they may do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import ConfigurationError
from kinesumer.local.errors import AwsError, access_denied
from kinesumer.model.validation import require_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesumer.local.policies import Policy

DEFAULT_ACCOUNT = "000000000000"
ACCOUNT = re.compile("[0-9]{12}")
EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)


class Credentials(NamedTuple):
    """What signs requests, and whom AWS takes its bearer for."""

    access_key_id: str
    secret_access_key: str
    account: str
    arn: str
    session_token: str | None = None
    expires_at: float | None = None
    allowed: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A role, whom it trusts and what it may do (patterns of actions)."""

    name: str
    account: str
    trusted: frozenset[str]
    external_id: str | None = None
    actions: tuple[str, ...] = ("*",)
    session_seconds: float | None = None
    """How long its credentials last, whatever the caller asks for."""

    @property
    def arn(self) -> str:
        """The role's ARN."""
        return f"arn:aws:iam::{self.account}:role/{self.name}"


PUBLIC_ACTIONS = "sts:GetCallerIdentity"
"""AWS answers it whatever policies say, explicit denials among them."""


class Denial(NamedTuple):
    """Patterns of an action, a resource and a caller that are refused."""

    action: str
    resource: str = "*"
    caller: str = "*"

    def covers(self, action: str, resource: str, caller: str) -> bool:
        """Return whether this refuses the call."""
        return (
            fnmatchcase(action, self.action)
            and fnmatchcase(resource, self.resource)
            and fnmatchcase(caller, self.caller)
        )


class Identities:
    """Every key, role, policy and denial; knows no clock: ``now`` is passed in."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._by_key: dict[str, Credentials] = {}
        self._by_account: dict[str, Credentials] = {}
        self._roles: dict[str, Role] = {}
        self.denials: list[Denial] = []
        self.policies: list[Policy] = []
        """Whom none of these concerns may do everything in its own account."""
        self._add(
            Credentials(
                "test", "test", DEFAULT_ACCOUNT, _user(DEFAULT_ACCOUNT, "kinesumer")
            )
        )

    def account(self, account: str) -> Credentials:
        """Return an account's credentials; the account is made if it is new."""
        if not ACCOUNT.fullmatch(account):
            raise ValueError(f"{account!r} is no AWS account id: use 12 digits")
        if account not in self._by_account:
            key = f"AKIA{account}LOCL"
            self._add(
                Credentials(key, self._new_id(), account, _user(account, "kinesumer"))
            )
        return self._by_account[account]

    def _add(self, credentials: Credentials) -> None:
        self._by_key[credentials.access_key_id] = credentials
        self._by_account[credentials.account] = credentials

    def create_role(
        self,
        name: str,
        *,
        account: str,
        trusted: Iterable[str],
        external_id: str | None = None,
        actions: Iterable[str] = ("*",),
        session_seconds: float | None = None,
    ) -> Role:
        """Create or replace a role that the trusted accounts (or ARNs) may assume.

        Raises ConfigurationError for what AWS wouldn't take.
        """
        self.account(account)
        if external_id is not None and not EXTERNAL_ID.fullmatch(external_id):
            raise ConfigurationError(
                f"external_id={external_id!r} is not what STS takes: use 2 to 1,224 "
                "letters, digits and =,.@:/-_+"
            )
        role = Role(
            name=name,
            account=account,
            trusted=frozenset(map(_principal, require_list("trusted", trusted))),
            external_id=external_id,
            actions=require_list("actions", actions),
            session_seconds=session_seconds,
        )
        self._roles[role.arn] = role
        return role

    def authenticate(self, key: str, token: str | None, now: float) -> Credentials:
        """Return whose key this is; raise AwsError if it is unknown or expired."""
        found = self._by_key.get(key)
        if found is None or found.session_token != token:
            raise AwsError(
                "UnrecognizedClientException",
                "The security token included in the request is invalid.",
            )
        if found.expires_at is not None and now >= found.expires_at:
            raise AwsError(
                "ExpiredTokenException",
                "The security token included in the request is expired",
            )
        return found

    def authorize(self, caller: Credentials, action: str, resource: str) -> None:
        """Raise AwsError if the caller may not do this to a resource."""
        if action == PUBLIC_ACTIONS:
            return
        if any(d.covers(action, resource, caller.arn) for d in self.denials):
            why = "an identity-based policy explicitly denies it"
            raise access_denied(caller.arn, action, resource, why)
        if not any(fnmatchcase(action, pattern) for pattern in caller.allowed):
            raise access_denied(caller.arn, action, resource)
        policies = [each for each in self.policies if each.concerns(caller.arn)]
        if policies and not any(each.allows(action, resource) for each in policies):
            raise access_denied(caller.arn, action, resource)
        owner = resource.split(":")[4] if resource.startswith("arn:") else ""
        if owner and owner != caller.account and action != "sts:AssumeRole":
            why = f"no resource-based policy allows the {action} action"
            raise access_denied(caller.arn, action, resource, why)

    def assume_role(
        self,
        caller: Credentials,
        role_arn: str,
        *,
        session_name: str,
        external_id: str | None,
        duration: float,
        now: float,
    ) -> Credentials:
        """Return temporary credentials for a role, if it trusts the caller."""
        role = self._roles.get(role_arn)
        if role is None or not _trusts(role, caller, external_id):
            raise access_denied(caller.arn, "sts:AssumeRole", role_arn)
        temporary = Credentials(
            f"ASIA{self._new_id()[:16].upper()}",
            self._new_id(),
            role.account,
            f"arn:aws:sts::{role.account}:assumed-role/{role.name}/{session_name}",
            f"token-{self._new_id()}",
            now + (role.session_seconds or duration),
            role.actions,
        )
        self._by_key[temporary.access_key_id] = temporary
        return temporary


def _principal(text: object) -> str:
    """Return an account id or an ARN. Raises ConfigurationError."""
    if isinstance(text, str) and (ACCOUNT.fullmatch(text) or text.startswith("arn:")):
        return text
    raise ConfigurationError(
        f"trusted names {text!r}: give an account id of 12 digits, or an ARN"
    )


def _trusts(role: Role, caller: Credentials, external_id: str | None) -> bool:
    root = f"arn:aws:iam::{caller.account}:root"
    known = not role.trusted.isdisjoint({caller.account, caller.arn, root})
    return known and role.external_id in (None, external_id)


def _user(account: str, name: str) -> str:
    return f"arn:aws:iam::{account}:user/{name}"
