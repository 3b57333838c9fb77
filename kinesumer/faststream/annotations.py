"""Annotations by which handlers get what FastStream's context has."""

from typing import Annotated

from faststream.annotations import ContextRepo, FastStream, Logger
from faststream.params import Context, NoCast

from kinesumer.faststream import broker, message

__all__ = [
    "ContextRepo",
    "FastStream",
    "KinesisBatchMessage",
    "KinesisBroker",
    "KinesisMessage",
    "Logger",
    "NoCast",
]

KinesisBroker = Annotated[broker.KinesisBroker, Context("broker")]
KinesisBatchMessage = Annotated[message.KinesisBatchMessage, Context("message")]
KinesisMessage = Annotated[message.KinesisMessage, Context("message")]
