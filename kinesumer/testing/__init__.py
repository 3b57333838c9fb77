"""Tools for tests of consumers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.testing.values import batch, record
else:

    def __getattr__(name: str) -> object:
        """Import the functions on first use: pytest always loads the plugin here."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kinesumer.testing import values

        return getattr(values, name)


__all__ = ["batch", "record"]
