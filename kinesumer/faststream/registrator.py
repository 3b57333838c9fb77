"""Declare subscribers and publishers, on a broker or on a router."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack, cast

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import (
    ArgsContainer,
    BrokerRouter,
    SubscriberRoute,
)
from faststream._internal.configs import PublisherUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy

from kinesumer.consuming.streams import StreamLike, as_streams
from kinesumer.faststream.config import KinesisBrokerConfig
from kinesumer.faststream.message import RawMessage
from kinesumer.faststream.publisher import KinesisPublisher, PublisherKeywords
from kinesumer.faststream.specification import (
    KinesisPublisherSpecification,
    KinesisSubscriberSpecification,
    PublishedStream,
    SubscribedStreams,
)
from kinesumer.faststream.subscriber import (
    KinesisSubscriber,
    SubscriberConfig,
    SubscriberKeywords,
)


class KinesisRegistrator(Registrator[RawMessage, KinesisBrokerConfig]):
    """Declares what a broker or a router has."""

    def subscriber(  # type: ignore[override]
        self, *streams: StreamLike, **options: Unpack[SubscriberKeywords]
    ) -> KinesisSubscriber:
        """Return a decorator by which a function handles the messages of streams.

        Each subscriber is a client of its ``app``, by default the broker's. So several
        streams for one function belong into one subscriber. ``client_id`` and ``start``
        are those of ``Kinesumer`` and of ``run()``; ``concurrency``, ``retries``,
        ``on_failure``, ``dead_letters`` and ``dead_letter_limit`` are those of
        ``run()``. With ``batch``, a message has the records of a batch.

        The other options are FastStream's. The default ``ack_policy`` is
        ``NACK_ON_ERROR``. Raises SetupError for ``ACK_FIRST``.
        """
        if not streams:
            raise SetupError("subscriber() names no stream: name one or more")
        _check("subscriber", options, SubscriberKeywords)
        outer = cast(KinesisBrokerConfig, self.config)
        found = as_streams(streams)
        config = SubscriberConfig(
            _outer_config=outer,
            _ack_policy=options.get("ack_policy", EMPTY),
            no_reply=options.get("no_reply", False),
        )
        described = SubscribedStreams(
            title_=options.get("title"),
            description_=options.get("description"),
            include_in_schema=options.get("include_in_schema", True),
            streams=[stream.name for stream in found],
        )
        calls = CallsCollection[Any]()
        specification = KinesisSubscriberSpecification(outer, described, calls)
        made = KinesisSubscriber(config, specification, calls, found, options)
        super().subscriber(made, persistent=options.get("persistent", True))
        return made.add_call(
            parser_=options.get("parser") or self._parser,
            decoder_=options.get("decoder") or self._decoder,
            codec_=options.get("codec"),
            dependencies_=options.get("dependencies", ()),
        )

    def publisher(  # type: ignore[override]
        self, stream: str, **options: Unpack[PublisherKeywords]
    ) -> KinesisPublisher:
        """Return a publisher into a stream, which is given by its name or ARN.

        As a decorator, it publishes what the function returns. ``partition_key``,
        ``explicit_hash_key``, ``headers`` and ``reply_to`` are those of each message
        that has no others. With ``batch``, a result is a sequence of messages.
        """
        _check("publisher", options, PublisherKeywords)
        outer = cast(KinesisBrokerConfig, self.config)
        described = PublishedStream(
            title_=options.get("title"),
            description_=options.get("description"),
            schema_=options.get("schema"),
            include_in_schema=options.get("include_in_schema", True),
            stream=stream,
        )
        specification = KinesisPublisherSpecification(outer, described)
        config = PublisherUsecaseConfig(_outer_config=outer)
        made = KinesisPublisher(config, specification, stream, options)
        super().publisher(made, persistent=options.get("persistent", True))
        return made


class KinesisPublisherRoute(ArgsContainer):
    """The arguments of ``publisher()``, for a ``KinesisRoute``."""

    def __init__(self, stream: str, **options: Unpack[PublisherKeywords]) -> None:
        super().__init__(stream, **options)


class KinesisRoute(SubscriberRoute):
    """A function and the arguments of ``subscriber()``, for a ``KinesisRouter``."""

    def __init__(
        self,
        call: Callable[..., Any],
        *streams: StreamLike,
        publishers: Iterable[KinesisPublisherRoute] = (),
        **options: Unpack[SubscriberKeywords],
    ) -> None:
        super().__init__(call, *streams, publishers=publishers, **options)


class KinesisRouter(KinesisRegistrator, BrokerRouter[RawMessage, KinesisBrokerConfig]):
    """Subscribers and publishers that a broker includes, with what they share.

    ``prefix`` precedes the names of streams, but neither ARNs nor tables.
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[KinesisRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[KinesisRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        config = KinesisBrokerConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            include_in_schema=include_in_schema,
        )
        super().__init__(handlers=handlers, config=config, routers=routers)


def _check(function: str, options: Any, known: Any) -> None:
    """Raise SetupError for an option whose name is unknown."""
    unknown = options.keys() - known.__optional_keys__
    if unknown:
        raise SetupError(
            f"{function}() has no argument {', '.join(sorted(unknown))}: correct its "
            "name"
        )
