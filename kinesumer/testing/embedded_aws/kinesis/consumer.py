"""Model the registered consumers of a stream."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kinesumer.testing.embedded_aws.kinesis.limits import Bucket


class Replaceable(Protocol):
    """A subscription that a later one may replace."""

    began_at: float

    def end_with(self, code: str, message: str) -> None:
        """End the subscription with an exception."""
        ...


@dataclass
class Consumer:
    """A registered consumer of a stream."""

    stream_arn: str
    name: str
    created_at: float
    active_at: float
    gone_at: float = math.inf
    tags: dict[str, str] = field(default_factory=dict)
    # By shard id: the last subscription, and the rate of the calls.
    subscriptions: dict[str, Replaceable] = field(default_factory=dict)
    calls: dict[str, Bucket] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """The consumer's ARN, which ends with the time of its creation."""
        return f"{self.stream_arn}/consumer/{self.name}:{int(self.created_at)}"

    def status(self, now: float) -> str:
        """Return CREATING, ACTIVE or DELETING."""
        if self.gone_at < math.inf:
            return "DELETING"
        return "CREATING" if now < self.active_at else "ACTIVE"

    def describe(self, now: float) -> dict[str, Any]:
        """Return the fields that every description of a consumer has."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now),
            "ConsumerCreationTimestamp": self.created_at,
        }
