"""Decode Protobuf messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kinesumer.model.records import Record

    M = TypeVar("M", bound=Message)
else:
    M = TypeVar("M")


class ProtobufDecoder(Generic[M]):
    """Decodes records that are Protobuf messages of one class.

    ``message`` is a class that protoc generated. Data with a registry's header is not
    accepted.

    Needs the extra ``protobuf``. Raises ConfigurationError if ``message`` is not such a
    class.
    """

    def __init__(self, message: type[M]) -> None:
        if not is_message(message):
            raise ConfigurationError(
                f"message={message!r} must be a message class that protoc generated "
                "(pip install 'kinesumer[protobuf]')"
            )
        self._decode = message.FromString

    def __call__(self, record: Record) -> M:
        """Return the message. Raises google.protobuf.message.DecodeError."""
        return self._decode(record.data)


def is_message(type_: Any) -> bool:
    """Return whether a type is a message class that protoc generated."""
    return hasattr(type_, "FromString") and hasattr(type_, "DESCRIPTOR")
