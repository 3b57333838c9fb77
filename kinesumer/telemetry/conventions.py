"""Names of OpenTelemetry's semantic conventions for messaging, for Kinesis.

The conventions are https://opentelemetry.io/docs/specs/semconv/messaging/, which are in
development. A stream is a destination, a shard is a partition, an app is a consumer
group, a record is a message, and a stored position settles messages. A test compares
the names with the published registry.
"""

from __future__ import annotations

from typing import NamedTuple

Attributes = dict[str, str]

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
MESSAGE_COUNT = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
ERROR_TYPE = "error.type"
REGION = "cloud.region"
ACCOUNT = "cloud.account.id"

# The conventions list no value for Kinesis, and permit others. This one is in the form
# of their newest value for a service of AWS, which is "aws.sns".
KINESIS = "aws.kinesis"

CONSUMED_MESSAGES = "messaging.client.consumed.messages"
SENT_MESSAGES = "messaging.client.sent.messages"
OPERATION_DURATION = "messaging.client.operation.duration"
PROCESS_DURATION = "messaging.process.duration"
# Bounds of the histograms' buckets in seconds, as the conventions recommend them.
BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)


class Operation(NamedTuple):
    """An operation with messages. Its name is ours, its type is one of a few."""

    name: str
    type: str

    @property
    def attributes(self) -> Attributes:
        """The attributes of its spans and durations."""
        return {OPERATION_NAME: self.name, OPERATION_TYPE: self.type}

    def span_name(self, stream: str) -> str:
        """Return the name of its spans; ``stream`` is empty for several streams."""
        return f"{self.name} {stream}".rstrip()


CREATE = Operation("create", "create")
PUT = Operation("put_records", "send")
GET = Operation("get_records", "receive")
PROCESS = Operation("process", "process")
COMMIT = Operation("commit", "settle")


def stream_attributes(arn: str) -> Attributes:
    """Return a stream's name, region and account as attributes, if there is one."""
    if not arn:
        return {SYSTEM: KINESIS}
    *_, region, account, resource = arn.split(":", 5)
    return {
        SYSTEM: KINESIS,
        DESTINATION: resource.removeprefix("stream/"),
        REGION: region,
        ACCOUNT: account,
    }


def error_attributes(error: BaseException) -> Attributes:
    """Return the type of an error as an attribute."""
    return {ERROR_TYPE: type(error).__qualname__}
