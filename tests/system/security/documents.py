"""The documented policies, and what each of them grants."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

IAM = Path(__file__).parents[3] / "schema" / "iam"
POLICIES = (
    "consumer",
    "consumer-of-app",
    "dead-letters",
    "fan-out",
    "fan-out-by-name",
    "fan-out-operator",
    "fan-out-register",
    "init",
    "kcl-fleet",
    "kcl-migration",
    "operator",
    "producer",
    "reader-role",
    "redrive",
    "schema-registry",
    "table-streams",
    "viewer",
    "viewer-records",
    "writer-role",
)

FAN_OUT = "fan-out", "fan-out-by-name", "fan-out-register"
CHECKED_WITHIN_CALLS = {"kinesis:TagResource"}
"""AWS checks these actions within another call, here one that registers with tags."""

Document = dict[str, Any]


class Grant(NamedTuple):
    """A policy's permission for one action on the resources of one statement."""

    policy: str
    action: str
    resource: str  # several patterns are separated by spaces


def document(policy: str) -> Document:
    """Return a documented policy, which is a template."""
    value: Document = json.loads((IAM / f"{policy}.json").read_text())
    return value


def grants(*policies: str) -> list[Grant]:
    """Return the single grants of policies, except those on KMS keys.

    Only test_least_privilege_of_keys.py has streams that are encrypted.
    """
    return [
        Grant(policy, action, resource(statement))
        for policy in policies
        for statement in document(policy)["Statement"]
        for action in actions(statement)
        if not action.startswith("kms:")
    ]


def actions(statement: Document) -> list[str]:
    """Return a statement's actions as a list. A single action may be plain text."""
    value = statement["Action"]
    return [value] if isinstance(value, str) else value


def resource(statement: Document) -> str:
    """Return a statement's resources, separated by spaces."""
    value = statement["Resource"]
    return value if isinstance(value, str) else " ".join(value)


def filled(policy: Document, names: dict[str, str]) -> Document:
    """Return a template with its placeholders filled in."""
    text = json.dumps(policy)
    for name, value in names.items():
        text = text.replace(f"${{{name}}}", value)
    assert "${" not in text
    done: Document = json.loads(text)
    return done


def without(policy: Document, removed: Grant) -> Document:
    """Return a policy that lacks one grant."""
    less = deepcopy(policy)
    for statement in less["Statement"]:
        if resource(statement) == removed.resource:
            left = [each for each in actions(statement) if each != removed.action]
            statement["Action"] = left
    assert less != policy
    return less
