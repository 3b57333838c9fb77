"""Describe a broker's streams for AsyncAPI, which has no bindings for Kinesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faststream._internal.configs import (
    PublisherSpecificationConfig,
    SubscriberSpecificationConfig,
)
from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import (
    Message,
    Operation,
    PublisherSpec,
    SubscriberSpec,
)

from kinesumer.faststream.config import KinesisBrokerConfig, prefixed


@dataclass(kw_only=True)
class SubscribedStreams(SubscriberSpecificationConfig):
    """The streams of a subscriber."""

    streams: Sequence[str]


@dataclass(kw_only=True)
class PublishedStream(PublisherSpecificationConfig):
    """The stream of a publisher."""

    stream: str


class KinesisSubscriberSpecification(
    SubscriberSpecification[KinesisBrokerConfig, SubscribedStreams]
):
    """Describes a subscriber: each of its streams is a channel."""

    @property
    def channel_labels(self) -> list[str]:
        """The streams."""
        return [prefixed(self._outer_config, name) for name in self.config.streams]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return the channels."""
        streams = self.channel_labels
        names = [self._channel_key(each, split=len(streams) > 1) for each in streams]
        payload = resolve_payloads(self.get_payloads())
        return {
            name: SubscriberSpec(
                self.description, _operation(name, payload), None, stream
            )
            for name, stream in zip(names, streams, strict=True)
        }


class KinesisPublisherSpecification(
    PublisherSpecification[KinesisBrokerConfig, PublishedStream]
):
    """Describes a publisher."""

    @property
    def stream(self) -> str:
        """The stream."""
        return prefixed(self._outer_config, self.config.stream)

    @property
    def name(self) -> str:
        """The channel's key."""
        return self.config.title_ or f"{self.stream}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the channel."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = _operation(self.name, payload)
        spec = PublisherSpec(self.config.description_, operation, None, self.stream)
        return {self.name: spec}


def _operation(name: str, payload: dict[str, Any]) -> Operation:
    return Operation(Message(payload=payload, title=f"{name}:Message"), bindings=None)
