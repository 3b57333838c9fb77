"""Traces and metrics of FastStream's: ``KinesisTelemetryMiddleware``.

The trace context travels in a message's headers.
"""

from functools import partial
from typing import Any

from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetryMiddleware, TelemetrySettingsProvider
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from opentelemetry.semconv.trace import SpanAttributes

from kinesumer.faststream.message import RawMessage, data_of
from kinesumer.faststream.response import KinesisPublishCommand

__all__ = ["KinesisTelemetryMiddleware"]


class _Settings(TelemetrySettingsProvider[RawMessage, KinesisPublishCommand]):
    messaging_system = "aws.kinesis"

    def get_consume_attrs_from_message(
        self, msg: StreamMessage[RawMessage]
    ) -> dict[str, Any]:
        data = data_of(msg)
        found = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: sum(map(len, data)),
            MESSAGING_DESTINATION_PUBLISH_NAME: msg.raw_message.stream,
        }
        if isinstance(msg.body, list):
            found[SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT] = len(data)
        return found

    def get_consume_destination_name(self, msg: StreamMessage[RawMessage]) -> str:
        return msg.raw_message.stream

    def get_publish_attrs_from_cmd(self, cmd: KinesisPublishCommand) -> dict[str, Any]:
        found: dict[str, Any] = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_DESTINATION_NAME: cmd.destination,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id,
        }
        if len(cmd.batch_bodies) > 1:
            count = SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT
            found[count] = len(cmd.batch_bodies)
        return found

    def get_publish_destination_name(self, cmd: KinesisPublishCommand) -> str:
        return cmd.destination


# The arguments are those of FastStream's other middlewares: ``tracer_provider`` etc.
KinesisTelemetryMiddleware = partial(
    TelemetryMiddleware[KinesisPublishCommand],
    settings_provider_factory=lambda _: _Settings(),
    include_messages_counters=True,
)
