"""IAM policies, as far as the embedded AWS enforces them: what is allowed, and on what.

Only what a policy allows is understood; anything else it might say is refused.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Statement(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    effect: Literal["Allow"]
    action: str | list[str]
    resource: str | list[str]
    sid: str = ""


class _Document(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    version: Literal["2012-10-17"]
    statement: list[_Statement]


class Policy(NamedTuple):
    """What callers, by a pattern of their ARN, may do: pairs of action and resource."""

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
