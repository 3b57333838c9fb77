"""Serve the requests about the tags of streams and registered consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.model.stream_consumers import CONSUMER_ARN
from kinesumer.testing.kinesis.consumers import find_consumer
from kinesumer.testing.kinesis.requests import ConsumerRequest

if TYPE_CHECKING:
    from kinesumer.testing.kinesis import requests as rq
    from kinesumer.testing.kinesis.streams import Stream

Answer = dict[str, Any]


def tag_stream(stream: Stream, request: rq.AddTagsToStream, now: float) -> Answer:
    """Return the response to AddTagsToStream."""
    stream.tags |= request.tags
    return {}


def tag_resource(stream: Stream, request: rq.TagResource, now: float) -> Answer:
    """Return the response to TagResource."""
    _tags_of(stream, request, now).update(request.tags)
    return {}


def list_stream_tags(stream: Stream, request: rq.Request, now: float) -> Answer:
    """Return the response to ListTagsForStream."""
    return {"Tags": _pairs(stream.tags), "HasMoreTags": False}


def list_resource_tags(
    stream: Stream, request: rq.ResourceRequest, now: float
) -> Answer:
    """Return the response to ListTagsForResource."""
    return {"Tags": _pairs(_tags_of(stream, request, now))}


def _tags_of(stream: Stream, request: rq.ResourceRequest, now: float) -> dict[str, str]:
    arn = request.resource_arn
    if CONSUMER_ARN.fullmatch(arn):
        return find_consumer(stream, ConsumerRequest(consumer_arn=arn), now).tags
    return stream.tags


def _pairs(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
