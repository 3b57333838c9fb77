"""Configure the subscribers and publishers of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from faststream._internal.configs import BrokerConfig

from kinesumer.config import Config


@dataclass(kw_only=True)
class KinesisBrokerConfig(BrokerConfig):
    """A broker's options; those of a router only narrow them."""

    app: str = ""
    table: str | None = None
    region: str | None = None
    session: object | None = None
    config: Config = field(default_factory=Config)


def prefixed(config: BrokerConfig, stream: str) -> str:
    """Return a stream's name with the prefix of its router.

    ARNs, and the streams of tables, stay as they are.
    """
    is_plain = not stream.startswith(("arn:", "table/"))
    return f"{config.prefix}{stream}" if is_plain else stream
