"""The broker by which FastStream consumes and publishes Kinesis streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Unpack

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto, SendableMessage
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec, Tag, TagDict

from kinesumer.config import Config
from kinesumer.coordination.connections import Identity
from kinesumer.errors import ConfigurationError
from kinesumer.faststream.config import KinesisBrokerConfig
from kinesumer.faststream.message import RawMessage
from kinesumer.faststream.producer import KinesisProducer, refuse_request
from kinesumer.faststream.registrator import KinesisRegistrator
from kinesumer.faststream.response import KinesisPublishCommand, PublishKeywords
from kinesumer.faststream.subscriber import KinesisSubscriber
from kinesumer.producer.client import Producer
from kinesumer.producer.record_producer import LINGER_SECONDS


class KinesisBroker(
    KinesisRegistrator,
    BrokerUsecase[RawMessage, KinesisProducer, KinesisBrokerConfig],
):
    """A broker for ``FastStream(KinesisBroker("billing"))``.

    ``app`` names the group whose clients the subscribers are. ``table``, ``region``,
    ``session`` and ``config`` are those of ``Kinesumer``; ``aggregate``, ``ordered``
    and ``linger_seconds`` are those of ``Producer``. The other options are those that
    FastStream's brokers have.

    Raises ConfigurationError for names that cannot be used.
    """

    def __init__(
        self,
        app: str,
        *,
        table: str | None = None,
        region: str | None = None,
        session: object | None = None,
        config: Config = Config(),  # noqa: B008 - frozen
        aggregate: bool = False,
        ordered: bool = False,
        linger_seconds: float = LINGER_SECONDS,
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[KinesisRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        # Refuse now what a client would refuse later.
        Identity.checked(app, app, table, region, config)
        if config.commit == "manual":
            raise ConfigurationError(
                "KinesisBroker acknowledges records as the ack_policy says: leave "
                'Config(commit="manual") out'
            )

        def new_producer(stream: str) -> Producer:
            return Producer(
                stream,
                aggregate=aggregate,
                ordered=ordered,
                region=region,
                session=session,
                linger_seconds=linger_seconds,
            )

        super().__init__(
            routers=routers,
            config=KinesisBrokerConfig(
                app=app,
                table=table,
                region=region,
                session=session,
                config=config,
                producer=KinesisProducer(new_producer, codec),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_logger_state(logger, log_level, _LoggerStorage),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
                # Config.drain_timeout_seconds says how long handlers have to finish.
                graceful_timeout=None,
            ),
            specification=BrokerSpec(
                url=[specification_url or _host(region)],
                protocol="kinesis",
                protocol_version=protocol_version,
                description=description,
                tags=tags,
                security=None,
            ),
        )

    async def _connect(self) -> KinesisProducer:
        producer: Any = self.config.producer
        producer.connect(self.config.fd_config._serializer)
        return producer  # type: ignore[no-any-return]

    async def start(self) -> None:
        """Begin to consume."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Hand over all shards, and put what waits.

        Raises an ExceptionGroup of the errors that have ended subscribers before, and
        PutFailedError.
        """
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                await connection.disconnect()

    async def ping(self, timeout: float | None = None) -> bool:
        """Return whether the broker is connected and its subscribers consume.

        It asks AWS nothing.
        """
        subscribers = [s for s in self.subscribers if isinstance(s, KinesisSubscriber)]
        return self._connection is not None and all(s.is_consuming for s in subscribers)

    async def publish(
        self, message: SendableMessage, stream: str, **options: Unpack[PublishKeywords]
    ) -> Any:
        """Put a message into a stream, which is given by its name or ARN.

        Without ``partition_key``, the correlation id is the key. Return the place of
        the stored record or, with ``no_confirm``, its future result. Raises what
        ``Producer`` raises.
        """
        cmd = self._command(message, stream=stream, options=options)
        return await self._basic_publish(cmd, producer=self.config.producer)

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: SendableMessage,
        stream: str,
        **options: Unpack[PublishKeywords],
    ) -> Any:
        """Put messages into a stream, and return a list of what ``publish()`` returns.

        Without ``partition_key``, their common correlation id is the key.
        """
        cmd = self._command(*messages, stream=stream, options=options)
        return await self._basic_publish_batch(cmd, producer=self.config.producer)

    def _command(
        self, *messages: SendableMessage, stream: str, options: PublishKeywords
    ) -> KinesisPublishCommand:
        made = KinesisPublishCommand(*messages, destination=stream, **options)
        made.correlation_id = made.correlation_id or self.config.id_generator()
        return made

    async def request(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a consumer of a stream cannot wait for one record."""
        refuse_request()


class _LoggerStorage(DefaultLoggerStorage):
    """Makes the logger of a broker, which names the streams."""

    def __init__(self) -> None:
        super().__init__()
        self._width = 0

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make room for the names of a subscriber's streams."""
        self._width = max(self._width, len(params["stream"]))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """Return the logger."""
        if (known := self._get_logger_ref()) is not None:
            return known
        made = get_broker_logger(
            name="kinesis",
            default_context={"stream": ""},
            message_id_ln=10,
            fmt=f"%(asctime)s %(levelname)-8s - %(stream)-{self._width}s | "
            "%(message_id)-10s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(made)
        return made


def _host(region: str | None) -> str:
    """Return the server for AsyncAPI. Without a region, the session decides."""
    return "kinesis" if region is None else f"kinesis.{region}.amazonaws.com"
