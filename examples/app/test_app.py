"""Test the application without AWS, as a project of yours would."""

# docs: test
from io import StringIO

from app import app, open_ledger


async def test_an_order_is_written_into_the_ledger() -> None:
    ledger = StringIO()
    async with app.test({open_ledger: lambda: ledger}) as test:
        await test.feed("orders", b'{"customer": "ann", "total": 7}')
    assert ledger.getvalue() == "ann pays 7.0\n"


# docs: end
