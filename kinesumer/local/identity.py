"""Accounts, roles, temporary credentials, permissions and the calls of STS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple
from xml.sax.saxutils import escape

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.local.request import AwsError, access_denied
from kinesumer.model.validation import require_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


DEFAULT_ACCOUNT = "000000000000"
ACCOUNT = re.compile("[0-9]{12}")
EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)


class Credentials(NamedTuple):
    """Access keys, and the identity and permissions of their holder."""

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
        """Policies. A caller without any may do everything in its own account."""
        self._add(
            Credentials(
                "test", "test", DEFAULT_ACCOUNT, _user(DEFAULT_ACCOUNT, "kinesumer")
            )
        )

    def account(self, account: str) -> Credentials:
        """Return an account's credentials; the account is made if it is new."""
        if not ACCOUNT.fullmatch(account):
            raise ValueError(f"{account!r} is not an AWS account id: use 12 digits")
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


class _Statement(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    effect: Literal["Allow"]
    action: str | list[str]
    resource: str | list[str]
    sid: str = ""


class _Document(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    version: Literal["2012-10-17"]
    statement: list[_Statement]


class Policy(NamedTuple):
    """The permitted actions and resources of callers that match a pattern."""

    caller: str
    allowed: tuple[tuple[str, str], ...]

    def concerns(self, caller: str) -> bool:
        """Return whether this is a policy of the caller."""
        return fnmatchcase(caller, self.caller)

    def allows(self, action: str, resource: str) -> bool:
        """Return whether an action on a resource is allowed here."""
        return any(
            fnmatchcase(action, may) and fnmatchcase(resource, on)
            for may, on in self.allowed
        )


def read_policy(document: Mapping[str, object], caller: str) -> Policy:
    """Return an IAM policy's document as a policy of callers.

    Raises msgspec.ValidationError for what isn't understood.
    """
    read = msgspec.convert(document, _Document)
    return Policy(
        caller,
        tuple(
            (action, resource)
            for statement in read.statement
            for action in _list(statement.action)
            for resource in _list(statement.resource)
        ),
    )


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
_ERRORS = {
    "UnrecognizedClientException": ("InvalidClientTokenId", 403),
    "ExpiredTokenException": ("ExpiredToken", 403),
    "AccessDeniedException": ("AccessDenied", 403),
    "MissingAuthenticationTokenException": ("MissingAuthenticationToken", 403),
    "ThrottlingException": ("Throttling", 400),
    "ValidationException": ("ValidationError", 400),
    "UnknownOperationException": ("InvalidAction", 400),
}
"""STS's codes of errors that other services name differently."""


def handle_sts(
    identities: Identities, caller: Credentials, form: Mapping[str, str], now: float
) -> bytes:
    """Carry out an STS request; raise AwsError if it is refused."""
    action = form.get("Action", "")
    if action == "GetCallerIdentity":
        return _caller_identity(caller)
    if action == "AssumeRole":
        return _assume_role(identities, caller, form, now)
    raise AwsError(
        "UnknownOperationException", f"The embedded STS has no action {action}."
    )


def _caller_identity(caller: Credentials) -> bytes:
    fields = {
        "Arn": caller.arn,
        "UserId": caller.access_key_id,
        "Account": caller.account,
    }
    return _response("GetCallerIdentity", _tags(fields))


def _assume_role(
    identities: Identities, caller: Credentials, form: Mapping[str, str], now: float
) -> bytes:
    name = form.get("RoleSessionName", "")
    duration = form.get("DurationSeconds", "3600")
    if not 2 <= len(name) <= 64:
        raise AwsError(
            "ValidationException", "RoleSessionName must have 2 to 64 letters"
        )
    if not duration.isdecimal() or not 900 <= int(duration) <= 43200:
        raise AwsError("ValidationException", "DurationSeconds must be 900 to 43200")
    role = identities.assume_role(
        caller,
        form.get("RoleArn", ""),
        session_name=name,
        external_id=form.get("ExternalId"),
        duration=int(duration),
        now=now,
    )
    credentials = {
        "AccessKeyId": role.access_key_id,
        "SecretAccessKey": role.secret_access_key,
        "SessionToken": role.session_token or "",
        "Expiration": _iso(role.expires_at or now),
    }
    user = {"Arn": role.arn, "AssumedRoleId": f"AROALOCAL:{name}"}
    return _response(
        "AssumeRole",
        f"<Credentials>{_tags(credentials)}</Credentials>"
        f"<AssumedRoleUser>{_tags(user)}</AssumedRoleUser>",
    )


def sts_error(error: AwsError) -> tuple[int, bytes]:
    """Return an error's status and body as STS writes it."""
    code, status = _ERRORS.get(error.code, (error.code, error.status))
    kind = "Receiver" if status >= 500 else "Sender"
    fields = _tags({"Type": kind, "Code": code, "Message": error.message})
    return status, (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error>{fields}</Error>'
        f"<RequestId>local</RequestId></ErrorResponse>"
    ).encode()


def _response(action: str, result: str) -> bytes:
    return (
        f'<{action}Response xmlns="{_NAMESPACE}"><{action}Result>{result}'
        f"</{action}Result><ResponseMetadata><RequestId>local</RequestId>"
        f"</ResponseMetadata></{action}Response>"
    ).encode()


def _tags(fields: Mapping[str, str]) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items())


def _iso(moment: float) -> str:
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
