"""Skip tests without the compiled decoder of CBOR, and decode with it."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.wire.cbor import compiled

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the decoder wasn't compiled: no C compiler"
)


def decoded(body: bytes) -> Any:
    """Return the value of a body in CBOR."""
    assert compiled is not None
    return compiled.decode(body)
