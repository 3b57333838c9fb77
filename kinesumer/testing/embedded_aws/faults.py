"""Make requests fail on demand."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec

Kind = Literal[
    "throttle",  # throttled, not applied
    "error",  # HTTP 500, or the error ``code`` with HTTP 400, not applied
    "latency",  # served ``latency_seconds`` later
    "drop",  # applied, but the connection closes without a response
    "refuse",  # the connection closes without a response, not applied
    "expired_iterator",  # ExpiredIteratorException (GetRecords only)
    "empty_page",  # no records although there are some (GetRecords only)
    "no_iterator",  # neither NextShardIterator nor ChildShards (GetRecords only)
    # The KMS key of a stream can't be used, for the reason ``key_error``: records are
    # neither read, pushed nor put.
    "key",
    # While a subscription sends its events:
    "cut",  # the connection closes in the middle of a frame
    "exception_event",  # an InternalFailureException ends the subscription
    "stall",  # nothing more is sent, and the connection stays open
    "corrupt",  # a frame with a wrong checksum
    # an event with neither ContinuationSequenceNumber nor ChildShards
    "no_continuation",
]
KeyProblem = Literal[
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "KMSOptInRequired",
    "KMSThrottlingException",
]
TABLE_STREAMS = "dynamodbstreams"  # the service of tables' streams
_READING = ("expired_iterator", "empty_page", "no_iterator")
PUSHED_EVENT = "SubscribeToShardEvent"  # the operation of an event that is sent
_WITH_KEY = ("GetRecords", "PutRecord", "PutRecords", PUSHED_EVENT)
_PUSHING = ("cut", "exception_event", "stall", "corrupt", "no_continuation")


class Call(NamedTuple):
    """The fields of a request that faults and the request log use."""

    service: str
    operation: str
    resource: str = "*"  # the ARN of the stream, table, table's stream or role
    shard: str | None = None
    account: str = ""
    caller: str = ""
    user_agent: str = ""
    access_key: str = ""
    content_type: str = ""

    @property
    def action(self) -> str:
        """The action's name in IAM policies."""
        service = "dynamodb" if self.service == TABLE_STREAMS else self.service
        return f"{service}:{self.operation}"

    @property
    def resource_name(self) -> str:
        """The name of the stream, table, consumer or role."""
        if self.service == TABLE_STREAMS and "/" in self.resource:
            return self.resource.split("/")[1]  # table/NAME/stream/LABEL
        return self.resource.rpartition("/")[2]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A failure of all calls that match every pattern.

    ``service`` is ``kinesis``, ``dynamodb``, ``dynamodbstreams`` or ``sts``.
    ``resource`` is a pattern of ARNs, or a stream's or table's name. ``user_agent``
    and ``content_type`` are parts of the headers. The fault ends after ``count`` calls
    or after ``seconds``. Without these, it lasts until it is removed.
    """

    kind: Kind
    code: str = ""
    service: str = "*"
    operation: str = "*"
    resource: str = "*"
    shard: str = "*"
    account: str = "*"
    access_key: str = "*"
    user_agent: str = ""
    content_type: str = ""
    probability: float = 1.0
    count: int | None = None
    seconds: float | None = None
    latency_seconds: float = 0.0
    key_error: KeyProblem = "KMSDisabledException"

    def matches(self, call: Call) -> bool:
        """Return whether this fault affects a call."""
        if self.kind in _READING and call.operation != "GetRecords":
            return False
        if self.kind == "key":
            if call.operation not in _WITH_KEY:
                return False
        elif (self.kind in _PUSHING) != (call.operation == PUSHED_EVENT):
            return False
        operation = call.operation.removesuffix("Event")
        return (
            fnmatchcase(call.service, self.service)
            and fnmatchcase(operation, self.operation)
            and (
                self.resource == call.resource_name
                or fnmatchcase(call.resource, self.resource)
            )
            and fnmatchcase(call.shard or "", self.shard)
            and fnmatchcase(call.account, self.account)
            and fnmatchcase(call.access_key, self.access_key)
            and self.user_agent in call.user_agent
            and self.content_type in call.content_type
        )


@dataclass
class _ActiveFault:
    fault: Fault
    until: float
    left: float


class Faults:
    """The active faults."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._active: dict[int, _ActiveFault] = {}
        self._last = 0

    def add(self, fault: Fault, now: float) -> int:
        """Add a fault and return its number."""
        self._last += 1
        until = math.inf if fault.seconds is None else now + fault.seconds
        left = math.inf if fault.count is None else fault.count
        self._active[self._last] = _ActiveFault(fault, until, left)
        return self._last

    def remove(self, number: int | None = None) -> None:
        """Remove one fault, or all faults."""
        if number is None:
            self._active.clear()
        else:
            self._active.pop(number, None)

    def active(self, now: float) -> dict[int, Fault]:
        """Return the active faults by number."""
        self._remove_ended(now)
        return {number: active.fault for number, active in self._active.items()}

    def strike(self, call: Call, now: float) -> list[Fault]:
        """Return the faults that affect this call. Count the call for each of them."""
        self._remove_ended(now)
        affecting = []
        for active in self._active.values():
            chance = active.fault.probability
            if active.fault.matches(call) and (
                chance >= 1 or self._chance.random() < chance
            ):
                affecting.append(active.fault)
                active.left -= 1
        return affecting

    def _remove_ended(self, now: float) -> None:
        self._active = {
            number: active
            for number, active in self._active.items()
            if now < active.until and active.left > 0
        }
