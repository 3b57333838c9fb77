"""The documented policies, and what each of them grants."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

IAM = Path(__file__).parents[3] / "schema" / "iam"
POLICIES = (
    "consumer",
    "dead-letters",
    "init",
    "kcl-migration",
    "operator",
    "producer",
    "reader-role",
    "redrive",
    "viewer",
    "writer-role",
)

Document = dict[str, Any]


class Grant(NamedTuple):
    """One action on one kind of resource, as a policy allows it."""

    policy: str
    action: str
    resource: str


def document(policy: str) -> Document:
    """Return a policy as it is documented: a template."""
    found: Document = json.loads((IAM / f"{policy}.json").read_text())
    return found


def grants(*policies: str) -> list[Grant]:
    """Return what policies grant, one by one."""
    return [
        Grant(policy, action, statement["Resource"])
        for policy in policies
        for statement in document(policy)["Statement"]
        for action in actions(statement)
    ]


def actions(statement: Document) -> list[str]:
    """Return a statement's actions as a list, which one alone needn't be."""
    found = statement["Action"]
    return [found] if isinstance(found, str) else found


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
        if statement["Resource"] == removed.resource:
            left = [each for each in actions(statement) if each != removed.action]
            statement["Action"] = left
    assert less != policy
    return less
