"""Test how texts are formatted, and that secrets are found in texts from outside."""

from __future__ import annotations

import html
import json
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.runtime.text import (
    CUT_LETTERS,
    EXAMINED_LETTERS,
    KEPT_SECRETS,
    MASK,
    QUOTED_LETTERS,
    Secrets,
    counted,
    duration_text,
    number_text,
    shorten,
)
from tests.support.steps import growth


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (100_000, "2 min"),
        (7_200_000, "2.0 h"),
        (259_200_000, "3.0 d"),
    ],
)
def test_durations_have_a_suitable_unit(millis: int, text: str) -> None:
    assert duration_text(millis) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0002, "<0.001"),
        (0.3456, "0.346"),
        (999.4, "999"),
        (999.6, "1k"),
        (1_234_567, "1.23M"),
        (5e11, "500G"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert number_text(value) == text


def test_one_thing_is_counted_in_the_singular() -> None:
    counts = [counted(number, "record") for number in (0, 1, 1500)]
    assert counts == ["0 records", "1 record", "1,500 records"]


def test_a_long_text_loses_its_middle() -> None:
    assert shorten("shardId-000000000042", 20) == "shardId-000000000042"
    assert shorten("shardId-000000000042", 10) == "sha…000042"


TOKEN = "IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWVhc3QtMSJHMEUCIQ+abc/def=="
WAYS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "url": lambda text: quote(text, safe=""),
    "url in part": quote,
    "form": quote_plus,
    "html": html.escape,
    "entities": lambda text: "".join(
        c if c.isalnum() else f"&#x{ord(c):X};" for c in text
    ),
    "decimal entities": lambda text: "".join(
        c if c.isalnum() else f"&#{ord(c):03};" for c in text
    ),
    "names": lambda text: (
        text.replace("+", "&plus;").replace("/", "&sol;").replace("=", "&equals;")
    ),
    "json": lambda text: json.dumps(text)[1:-1],
    "json of PHP": lambda text: text.replace("/", r"\/"),
    "json in json": lambda text: json.dumps(json.dumps(text.replace("/", r"\/")))[3:-3],
    "escapes": lambda text: "".join(
        c if c.isalnum() else f"\\u{ord(c):04x}" for c in text
    ),
}
values = st.text(string.ascii_letters + string.digits + "+/=&<>\"'-_ .~", min_size=4)


def knowing(*secrets: str | None) -> Secrets:
    """Return an object that knows secrets."""
    found = Secrets()
    for secret in secrets:
        found.add(secret)
    return found


@pytest.mark.parametrize("way", WAYS)
@given(values, st.text(max_size=5), st.text(max_size=5))
def test_a_secret_is_replaced_however_it_is_written(
    way: str, secret: str, before: str, after: str
) -> None:
    if way == "form" and " " in secret:
        return
    written = WAYS[way](secret)
    text = knowing(secret).redact(f"{before}<{written}>{after}")
    assert written not in text or written in MASK
    assert MASK in text


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_page_keeps_what_is_around_a_token(way: Callable[[str], str]) -> None:
    page = f"Bad request. token: {way(TOKEN)}\r\nhost: x; again {way(TOKEN)}"
    assert knowing(TOKEN).redact(page) == page.replace(way(TOKEN), MASK)


def test_a_token_that_is_cut_off_is_replaced() -> None:
    for end in range(CUT_LETTERS, len(TOKEN)):
        assert knowing(TOKEN).redact(f"x: {TOKEN[:end]}...") == f"x: {MASK}..."


def test_other_texts_are_not_changed() -> None:
    for text in ("", "a page", TOKEN[: CUT_LETTERS - 1], TOKEN[5:]):
        assert knowing(TOKEN, None, "", "abc").redact(text) == text
    assert knowing("abc").redact("abc abcd") == "abc abcd"  # too short for a secret


def test_several_secrets_are_replaced_and_the_oldest_is_forgotten() -> None:
    secrets = [f"{number:03} of all secrets" for number in range(KEPT_SECRETS + 1)]
    known = knowing(*secrets, *secrets[5:])
    shown = known.redact("; ".join(secrets))
    assert shown == "; ".join([secrets[0]] + [MASK] * KEPT_SECRETS)


def test_a_quoted_text_is_short_and_has_no_part_of_a_secret() -> None:
    known = knowing(TOKEN)
    assert known.quote("x" * 5_000) == "x" * QUOTED_LETTERS
    page = "x" * (QUOTED_LETTERS - 20) + TOKEN * 2_000
    assert TOKEN[:5] not in known.quote(page)


class ForeignError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text, 5)
        self.text, self.fields, self.number = text, {"body": text, "status": 5}, 7


def test_the_texts_of_an_error_are_replaced() -> None:
    error = ForeignError(f"token {TOKEN}")
    knowing(TOKEN).clean(error)
    assert error.args == (f"token {MASK}", 5)
    assert error.text == f"token {MASK}"
    assert error.fields == {"body": f"token {MASK}", "status": 5}
    assert error.number == 7


def test_the_work_is_linear_in_the_text() -> None:
    known = knowing(*(f"{number:03} {TOKEN}" for number in range(5)), TOKEN)

    def work(size: int) -> Callable[[], object]:
        text = TOKEN[:CUT_LETTERS] * size
        return lambda: known.redact(text)

    assert growth(work) < 5
    assert growth(lambda n: lambda: known.quote("x" * n), EXAMINED_LETTERS) < 2
