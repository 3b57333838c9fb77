"""Amazon Kinesis for FastStream. It needs the extra ``kinesumer[faststream]``."""

from importlib.util import find_spec

if find_spec("faststream") is None:
    raise ImportError(
        "kinesumer.faststream needs FastStream: pip install 'kinesumer[faststream]'"
    )

from kinesumer.faststream.annotations import KinesisBatchMessage, KinesisMessage
from kinesumer.faststream.broker import KinesisBroker
from kinesumer.faststream.registrator import (
    KinesisPublisherRoute,
    KinesisRoute,
    KinesisRouter,
)
from kinesumer.faststream.response import KinesisResponse
from kinesumer.faststream.testing import TestKinesisBroker

__all__ = [
    "KinesisBatchMessage",
    "KinesisBroker",
    "KinesisMessage",
    "KinesisPublisherRoute",
    "KinesisResponse",
    "KinesisRoute",
    "KinesisRouter",
    "TestKinesisBroker",
]
