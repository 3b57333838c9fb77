"""Consume streams for FastStream's handlers, through one client for each subscriber."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from fast_depends.dependencies import Dependant
from faststream._internal.application import Application
from faststream._internal.configs import SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import (
    SubscriberSpecification,
    SubscriberUsecase,
)
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream._internal.parser import CodecProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import (
    FeatureNotSupportedException,
    SetupError,
    StopConsume,
)
from faststream.message import StreamMessage
from faststream.message.message import AckStatus
from faststream.middlewares import AckPolicy

from kinesumer.client import Kinesumer
from kinesumer.consuming.delivery import Records
from kinesumer.faststream.config import KinesisBrokerConfig, prefixed
from kinesumer.faststream.message import (
    OUTCOME,
    NotAckedError,
    Outcome,
    RawMessage,
    RejectedError,
    decode_batch,
    decode_record,
    parse_batch,
    parse_record,
)
from kinesumer.faststream.publisher import ReplyPublisher
from kinesumer.handlers.handler import Handler, HandlerKeywords, OnFailure
from kinesumer.handlers.retry_policy import RetryPolicy
from kinesumer.model.streams import Start, StartLike, Stream, stream_name

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.handlers.dead_letters.letter import DeadLetterFunction


class SubscriberKeywords(TypedDict, total=False):
    """The keyword arguments of ``subscriber()``."""

    app: str | None
    client_id: str | None
    start: StartLike
    batch: bool
    concurrency: int
    on_failure: OnFailure | None
    dead_letters: str | DeadLetterFunction | None
    dead_letter_limit: float
    retries: RetryPolicy
    # These are FastStream's.
    ack_policy: AckPolicy
    no_reply: bool
    dependencies: Sequence[Dependant]
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None
    persistent: bool
    title: str | None
    description: str | None
    include_in_schema: bool


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """The options that decide when a message is done."""

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber, or else of its broker."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is AckPolicy.ACK_FIRST:
                raise SetupError(
                    "a record is done when its handler ends, so AckPolicy.ACK_FIRST "
                    "is not supported: use AckPolicy.ACK"
                )
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


class KinesisSubscriber(SubscriberUsecase[Any]):
    """Consumes streams as a client of its app, and calls the handlers."""

    _outer_config: KinesisBrokerConfig

    def __init__(
        self,
        config: SubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
        streams: Sequence[Stream],
        options: SubscriberKeywords,
    ) -> None:
        self._options, self.takes_batches = options, options.get("batch", False)
        config.parser = parse_batch if self.takes_batches else parse_record
        config.decoder = decode_batch if self.takes_batches else decode_record
        super().__init__(config, specification, calls)
        self._streams = streams
        self._opened = AsyncExitStack()
        self._records: Records[bytes] | None = None
        self._client: Kinesumer
        self._consuming: asyncio.Task[None] | None = None
        # What a handler raised to stop the subscriber or the application.
        self._stopped_by: BaseException | None = None

    @property
    def streams(self) -> list[Stream]:
        """The streams, with the prefix of their router."""
        outer = self._outer_config
        return [
            stream if name == stream.name else replace(stream, name=name)
            for stream in self._streams
            for name in [prefixed(outer, stream.name)]
        ]

    def reads(self, stream: str) -> bool:
        """Return whether it reads a stream with this name or ARN."""
        name = stream_name(stream)
        return any(stream_name(each.name) == name for each in self.streams)

    @property
    def is_consuming(self) -> bool:
        """False if it should consume, but what it does has ended."""
        return self._consuming is None or not self._consuming.done()

    async def start(self) -> None:
        """Begin to consume, if there is a handler."""
        await super().start()
        self._post_start()
        if self.calls and self._consuming is None:
            self._stopped_by = None
            self._client = self._new_client()
            self._consuming = asyncio.create_task(self._consume())

    async def stop(self) -> None:
        """Hand over the shards, and end. Raise what has ended the consumption before.

        Handlers finish their records, for ``Config.drain_timeout_seconds`` at most.
        """
        if self._consuming is not None and not self._consuming.done():
            await self._client.leave()
        self._records = None
        await self._opened.aclose()
        await super().stop()
        if self._consuming is not None:
            try:
                await self._consuming
            finally:
                self._consuming = None

    async def get_one(self, *, timeout: float = 5.0) -> StreamMessage[Any] | None:
        """Return the next message, or None after ``timeout`` seconds.

        The message before it is done then. The subscriber must have no handlers.
        """
        records = await self._iterated()
        try:
            record = await asyncio.wait_for(anext(records), timeout)
        except TimeoutError:
            return None
        return await self._message(record)

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Any]]:
        """Yield messages; a message is done when the next one is requested."""
        async for record in await self._iterated():
            yield await self._message(record)

    async def _iterated(self) -> Records[bytes]:
        if self.calls or self.takes_batches:
            raise FeatureNotSupportedException(
                "a subscriber with handlers or with batch=True has no messages to "
                "iterate over: declare another one"
            )
        if self._records is None:
            client = await self._opened.enter_async_context(self._new_client())
            start = self._options.get("start", Start.LATEST)
            records = client.consume(self.streams, start=start)
            self._records = await self._opened.enter_async_context(records)
        return self._records

    async def _message(self, record: RawMessage) -> StreamMessage[Any]:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        middlewares = (m(record, context=context) for m in self._broker_middlewares)
        message = await process_msg(
            record, middlewares=middlewares, parser=parser, decoder=decoder
        )
        assert message is not None
        return message

    def _new_client(self) -> Kinesumer:
        outer, options = self._outer_config, self._options
        return Kinesumer(
            options.get("app") or outer.app,
            table=outer.table,
            region=outer.region,
            client_id=options.get("client_id"),
            session=outer.session,
            config=outer.config,
        )

    async def _consume(self) -> None:
        """Call the handlers until the subscriber stops. Raise what ends it before."""
        try:
            async with self._client:
                await self._client.run(
                    {stream: self._handler() for stream in self.streams},
                    start=self._options.get("start", Start.LATEST),
                )
        except asyncio.CancelledError:
            if self._stopped_by is None:
                raise
        except Exception as error:
            # stop() raises it, which ends the process with an error.
            self._log(logging.CRITICAL, f"consumption ends: {error}", exc_info=error)
            self._end_application()
            raise
        finally:
            self.running = False
        if isinstance(self._stopped_by, SystemExit):
            self._end_application()

    def _end_application(self) -> None:
        app = self._outer_config.context.get("app")
        if isinstance(app, Application):
            app.exit()

    def _handler(self) -> Handler:
        known, given = HandlerKeywords.__optional_keys__, dict[str, Any](self._options)
        options = {name: given[name] for name in known & given.keys()}
        retries = options.get("retries") or RetryPolicy()
        options["batch"] = self.takes_batches
        options["retries"] = replace(
            retries, non_retryable=(*retries.non_retryable, RejectedError)
        )
        return Handler(self._handle, **options)

    async def _handle(self, raw: RawMessage) -> None:
        """Process a record or a batch. It is done if this returns."""
        if self._stopped_by is not None:
            await _until_cancelled()
        outcome, failure = Outcome(), None
        token = OUTCOME.set(outcome)
        try:
            await self.process_message(raw)
        except (StopConsume, SystemExit) as stop:
            self._stopped_by = stop
            assert self._consuming is not None
            self._consuming.cancel()
            if outcome.status is not AckStatus.ACKED:
                await _until_cancelled()
        except Exception as error:
            failure = error
        finally:
            OUTCOME.reset(token)
        self._settle(outcome.status, failure)

    def _settle(self, status: AckStatus | None, failure: Exception | None) -> None:
        """Return if the message is done. Otherwise raise what it fails with."""
        if status is AckStatus.ACKED:
            return
        if status is AckStatus.REJECTED:
            cause = "" if failure is None else f": {failure!r}"
            if self._options.get("dead_letters") is not None:
                raise RejectedError(f"the message was rejected{cause}") from failure
            self._log(logging.WARNING, f"a rejected message is skipped{cause}")
            return
        if failure is not None:
            raise failure
        if status is AckStatus.NACKED or self.ack_policy is AckPolicy.MANUAL:
            raise NotAckedError(
                "the handler ended without ack() of its message: call ack(), or let "
                "the ack_policy do so"
                if status is None
                else "the handler called nack(), or raised NackMessage"
            )

    def _make_response_publisher(
        self, message: StreamMessage[Any]
    ) -> Iterable[PublisherProto[Any]]:
        return (ReplyPublisher(self._outer_config.producer, message.reply_to),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """Return the fields of log lines about a message."""
        if message is None:
            names = [stream.name for stream in self.streams]
            return {"stream": ",".join(names), "message_id": ""}
        # Sequence numbers differ at their ends.
        return {
            "stream": message.raw_message.stream,
            "message_id": message.message_id[-10:],
        }


async def _until_cancelled() -> NoReturn:
    """Wait until ``run()`` cancels the handler, so that its record is not done."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")
