"""Check identities and permissions, and answer the calls of STS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.testing.kinesis.requests import (
    AwsError,
    invalid_request,
    unknown_operation,
)

DEFAULT_ACCOUNT = "000000000000"
DEFAULT_REGION = "us-east-1"
WEB_IDENTITY = "AssumeRoleWithWebIdentity"
ACCOUNT = re.compile("[0-9]{12}")
EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)


def access_denied(caller: str, action: str, resource: str, why: str = "") -> AwsError:
    """Return the error for a denied action, with the text that AWS uses."""
    reason = why or f"no identity-based policy allows the {action} action"
    return AwsError(
        "AccessDeniedException",
        f"User: {caller} is not authorized to perform: {action} "
        f"on resource: {resource} because {reason}",
    )


class Credentials(NamedTuple):
    """Access keys, and the identity and permissions of their holder."""

    access_key_id: str
    secret_access_key: str
    account: str
    arn: str
    session_token: str | None = None
    expires_at: float | None = None
    allowed: tuple[str, ...] = ("*",)

    def among(self, rules: Iterable[Rule]) -> list[Rule]:
        """Return the rules that apply to this caller."""
        return [rule for rule in rules if fnmatchcase(self.arn, rule.caller)]


class Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role, the accounts and ARNs that it trusts, and patterns of allowed actions.

    A role that trusts an OIDC provider is assumed with any of its tokens.
    ``session_seconds`` is the lifetime of the role's credentials. Without it, they
    have the lifetime that the caller of AssumeRole requests.
    """

    name: str
    account: str
    trusted: tuple[str, ...] = (DEFAULT_ACCOUNT,)
    external_id: str | None = None
    actions: tuple[str, ...] = ("*",)
    session_seconds: float | None = None

    @property
    def arn(self) -> str:
        """The role's ARN."""
        return f"arn:aws:iam::{self.account}:role/{self.name}"


class Rule(NamedTuple):
    """Patterns of the calls that are allowed or denied.

    ``keys`` are patterns of the partition keys of the rows that a call concerns.
    """

    action: str
    resource: str = "*"
    caller: str = "*"
    keys: tuple[str, ...] = ("*",)

    def covers(self, action: str, resource: str, keys: Sequence[str]) -> bool:
        """Return whether this applies to a call of its caller."""
        return (
            fnmatchcase(action, self.action)
            and fnmatchcase(resource, self.resource)
            and all(any(fnmatchcase(key, one) for one in self.keys) for key in keys)
        )


class Identities:
    """All keys, roles, policies and denials."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._by_key: dict[str, Credentials] = {}
        self._by_account: dict[str, Credentials] = {}
        self._roles: dict[str, Role] = {}
        self.denials: list[Rule] = []
        # A caller to which none of these applies may do everything in its own account.
        self.allowed: list[Rule] = []
        # Accept the credentials that users of other emulators have configured.
        self._add("test", "test", DEFAULT_ACCOUNT)

    def account(self, account: str) -> Credentials:
        """Return an account's credentials, and create the account if it is new."""
        if not ACCOUNT.fullmatch(account):
            raise ValueError(f"{account!r} is not an AWS account id: use 12 digits")
        if account not in self._by_account:
            self._add(f"AKIA{account}LOCL", self._new_id(), account)
        return self._by_account[account]

    def _add(self, key: str, secret: str, account: str) -> None:
        user = f"arn:aws:iam::{account}:user/kinesumer"
        self._by_account[account] = Credentials(key, secret, account, user)
        self.accept(self._by_account[account])

    def accept(self, credentials: Credentials) -> None:
        """Accept these credentials from now on, until they expire."""
        self._by_key[credentials.access_key_id] = credentials

    def replace_keys(
        self, account: str, now: float, lifetime_seconds: float | None = None
    ) -> Credentials:
        """Give an account's user other keys. From now on, the old ones are unknown.

        With a lifetime, the keys are temporary, and have a session token.
        """
        old = self.account(account)
        del self._by_key[old.access_key_id]
        self._add(f"AKIA{self._new_id()[:16].upper()}", self._new_id(), account)
        keys = self._by_account[account]
        if lifetime_seconds is not None:
            token, until = f"token-{self._new_id()}", now + lifetime_seconds
            keys = keys._replace(session_token=token, expires_at=until)
            self._by_account[account] = keys
            self.accept(keys)
        return keys

    def federated(self, role_arn: str) -> Credentials:
        """Return the caller of a request that is signed by no key, but has a token.

        Raise AwsError unless the role trusts an OIDC provider.
        """
        role = self._roles.get(role_arn)
        for trusted in role.trusted if role is not None else ():
            if ":oidc-provider/" in trusted:
                return Credentials("", "", trusted.split(":")[4], trusted)
        raise access_denied("anonymous", f"sts:{WEB_IDENTITY}", role_arn)

    def add_role(self, role: Role) -> None:
        """Create or replace a role. Raise ConfigurationError if it is invalid."""
        self.account(role.account)
        external_id = role.external_id
        if external_id is not None and not EXTERNAL_ID.fullmatch(external_id):
            raise ConfigurationError(
                f"external_id={external_id!r} is not what STS takes: use 2 to 1,224 "
                "letters, digits and =,.@:/-_+"
            )
        for principal in role.trusted:
            text = principal if isinstance(principal, str) else ""
            if not (ACCOUNT.fullmatch(text) or text.startswith("arn:")):
                raise ConfigurationError(
                    f"trusted contains {principal!r}: use an account id of 12 digits, "
                    "or an ARN"
                )
        self._roles[role.arn] = role

    def authenticate(self, key: str, token: str | None, now: float) -> Credentials:
        """Return a key's credentials. Raise AwsError if it is unknown or expired."""
        credentials = self._by_key.get(key)
        if credentials is None or credentials.session_token != token:
            raise AwsError(
                "UnrecognizedClientException",
                "The security token included in the request is invalid.",
            )
        if credentials.expires_at is not None and now >= credentials.expires_at:
            raise AwsError(
                "ExpiredTokenException",
                "The security token included in the request is expired",
            )
        return credentials

    def authorize(
        self,
        caller: Credentials,
        action: str,
        resource: str,
        keys: Sequence[str] = (),
    ) -> None:
        """Raise AwsError if the caller may not perform an action on a resource.

        ``keys`` are the partition keys of the rows that the call concerns.
        """
        if action == "sts:GetCallerIdentity":
            return  # AWS allows this action even if it is explicitly denied
        if any(
            rule.covers(action, resource, keys) for rule in caller.among(self.denials)
        ):
            why = "an identity-based policy explicitly denies it"
            raise access_denied(caller.arn, action, resource, why)
        if not any(fnmatchcase(action, pattern) for pattern in caller.allowed):
            raise access_denied(caller.arn, action, resource)
        rules = caller.among(self.allowed)
        if rules and not any(rule.covers(action, resource, keys) for rule in rules):
            raise access_denied(caller.arn, action, resource)
        # Streams and tables have no resource policies here, so only a role of another
        # account gives access to that account's resources.
        owner = resource.split(":")[4] if resource.startswith("arn:") else ""
        is_assumed = action in ("sts:AssumeRole", f"sts:{WEB_IDENTITY}")
        if owner and owner != caller.account and not is_assumed:
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
        """Return a role's temporary credentials, if the role trusts the caller."""
        role = self._roles.get(role_arn)
        if role is None or not _trusts(role, caller, external_id):
            raise access_denied(caller.arn, "sts:AssumeRole", role_arn)
        # As in AWS, temporary keys begin with ASIA. The keys of users begin with AKIA.
        temporary = Credentials(
            f"ASIA{self._new_id()[:16].upper()}",
            self._new_id(),
            role.account,
            f"arn:aws:sts::{role.account}:assumed-role/{role.name}/{session_name}",
            f"token-{self._new_id()}",
            now + (role.session_seconds or duration),
            role.actions,
        )
        self.accept(temporary)
        return temporary


def _trusts(role: Role, caller: Credentials, external_id: str | None) -> bool:
    root = f"arn:aws:iam::{caller.account}:root"
    trusted = {caller.account, caller.arn, root} & {*role.trusted}
    return bool(trusted) and role.external_id in (None, external_id)


class _Keys(msgspec.Struct, forbid_unknown_fields=True):
    patterns: str | list[str] = msgspec.field(name="dynamodb:LeadingKeys")


class _Condition(msgspec.Struct, forbid_unknown_fields=True):
    keys: _Keys = msgspec.field(name="ForAllValues:StringLike")


class _Statement(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    effect: Literal["Allow"]
    action: str | list[str]
    resource: str | list[str]
    sid: str = ""
    condition: _Condition | None = None


class _Document(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    version: Literal["2012-10-17"]
    statement: list[_Statement]


def read_policy(document: Mapping[str, object], caller: str) -> list[Rule]:
    """Parse an IAM policy's document. ``caller`` is a pattern of callers' ARNs.

    The only condition is on ``dynamodb:LeadingKeys``. Raise msgspec.ValidationError for
    statements that aren't supported.
    """
    return [
        Rule(action, resource, caller, _keys(statement.condition))
        for statement in msgspec.convert(document, _Document).statement
        for action in _list(statement.action)
        for resource in _list(statement.resource)
    ]


def _keys(condition: _Condition | None) -> tuple[str, ...]:
    return ("*",) if condition is None else tuple(_list(condition.keys.patterns))


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
# Maps an error code of the other services to STS's error code and HTTP status.
_ERRORS = {
    "UnrecognizedClientException": ("InvalidClientTokenId", 403),
    "ExpiredTokenException": ("ExpiredToken", 403),
    "AccessDeniedException": ("AccessDenied", 403),
    "MissingAuthenticationTokenException": ("MissingAuthenticationToken", 403),
    "ThrottlingException": ("Throttling", 400),
    "ValidationException": ("ValidationError", 400),
    "UnknownOperationException": ("InvalidAction", 400),
}


def handle_sts(
    identities: Identities, caller: Credentials, form: Mapping[str, str], now: float
) -> bytes:
    """Return the response to an STS request. Raise AwsError if it is refused."""
    action = form.get("Action", "")
    if action == "GetCallerIdentity":
        user = {
            "Arn": caller.arn,
            "UserId": caller.access_key_id,
            "Account": caller.account,
        }
        return _response(action, _tags(user))
    if action in ("AssumeRole", WEB_IDENTITY):
        return _assume_role(identities, caller, form, now)
    raise unknown_operation(f"The embedded STS has no action {action}.")


def _assume_role(
    identities: Identities, caller: Credentials, form: Mapping[str, str], now: float
) -> bytes:
    name = form.get("RoleSessionName", "")
    duration = form.get("DurationSeconds", "3600")
    if not 2 <= len(name) <= 64:
        raise invalid_request("RoleSessionName must have 2 to 64 characters")
    if not duration.isdecimal() or not 900 <= int(duration) <= 43200:
        raise invalid_request("DurationSeconds must be 900 to 43200")
    role = identities.assume_role(
        caller,
        form.get("RoleArn", ""),
        session_name=name,
        external_id=form.get("ExternalId"),
        duration=int(duration),
        now=now,
    )
    expires = datetime.fromtimestamp(role.expires_at or now, UTC)
    credentials = {
        "AccessKeyId": role.access_key_id,
        "SecretAccessKey": role.secret_access_key,
        "SessionToken": role.session_token or "",
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    user = {"Arn": role.arn, "AssumedRoleId": f"AROALOCAL:{name}"}
    return _response(
        form["Action"],
        f"<Credentials>{_tags(credentials)}</Credentials>"
        f"<AssumedRoleUser>{_tags(user)}</AssumedRoleUser>",
    )


def sts_error(error: AwsError) -> tuple[int, bytes]:
    """Return an error's status and body in STS's format."""
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
