"""Test that public names consist of terms of the glossary, of AWS and of Kafka."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinesumer

GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"
MOST_TERMS = 44
AWS_AND_KAFKA = """
    access ago approximate arn arrival arrived arrow assigned assignor attempts behind
    buffer busy bytes change close column concurrency config configuration connection
    consume consumer corrupt count create created credentials data decode delay denied
    duration error expired explicit external failed failover failure fallback fan
    fatal flush function future horizon id image initial interval invalid json kcl key
    kind kinesumer label latest leave limit linger listing loss lost max micros
    middleware millis min missing name new number old order out owned pandas parse
    partition per polars policy processing producer put read reason rebalance record
    recreated refresh region result resume retries retry retryable revoke role row
    schema seconds sequence size source stored stream sub table text timeout timestamp
    traceparent trim type uncommitted unreachable value wait weight
"""
# The words by which web frameworks and their tests know the same.
FRAMEWORKS = """
    depends scope test
"""
ENGLISH = """
    after at before by do done end exception in iter non not of on run to use with
"""


def terms() -> list[str]:
    """Return the terms of the glossary."""
    lines = GLOSSARY.read_text().splitlines()
    return [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]


def words_of(name: str) -> list[str]:
    """Return the words of an identifier, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def public_names() -> Iterator[str]:
    """Yield the package's exported names, and the public members of its classes."""
    for name in kinesumer.__all__:
        yield name
        value = getattr(kinesumer, name)
        if inspect.isclass(value):
            own = {*vars(value), *getattr(value, "__annotations__", ())}
            yield from (member for member in own if not member.startswith("_"))


def test_the_glossary_is_short() -> None:
    assert len(terms()) <= MOST_TERMS
    assert sorted(terms(), key=lambda term: term.replace("-", " ")) == terms()


@pytest.mark.parametrize("name", sorted(set(public_names())))
def test_each_word_of_a_public_name_is_a_known_term(name: str) -> None:
    known = {word for term in terms() for word in re.split(r"[ -]", term)}
    known.update(f"{AWS_AND_KAFKA} {FRAMEWORKS} {ENGLISH}".split())
    assert not [
        word
        for word in words_of(name)
        if not {word, word.removesuffix("s"), word.removesuffix("es")} & known
    ]
