"""Metrics of FastStream's for Prometheus: ``KinesisPrometheusMiddleware``."""

from functools import partial

from faststream.message import StreamMessage
from faststream.prometheus import (
    ConsumeAttrs,
    MetricsSettingsProvider,
    PrometheusMiddleware,
)

from kinesumer.faststream.message import RawMessage, data_of
from kinesumer.faststream.response import KinesisPublishCommand

__all__ = ["KinesisPrometheusMiddleware"]


class _Settings(MetricsSettingsProvider[RawMessage, KinesisPublishCommand]):
    messaging_system = "aws.kinesis"

    def get_consume_attrs_from_message(
        self, msg: StreamMessage[RawMessage]
    ) -> ConsumeAttrs:
        data = data_of(msg)
        return {
            "destination_name": msg.raw_message.stream,
            "message_size": sum(map(len, data)),
            "messages_count": len(data),
        }

    def get_publish_destination_name_from_cmd(self, cmd: KinesisPublishCommand) -> str:
        return cmd.destination


# The arguments are those of FastStream's other middlewares: ``registry`` and the like.
KinesisPrometheusMiddleware = partial(
    PrometheusMiddleware[RawMessage, KinesisPublishCommand],
    settings_provider_factory=lambda _: _Settings(),
)
