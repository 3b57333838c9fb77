"""Test which writes a table's stream tells of, and what its records show."""

from __future__ import annotations

import pytest

from kinesumer.testing.table_streams.changes import (
    Change,
    Item,
    ViewType,
    event_id,
    images_of,
    item_bytes,
    partition_text,
)

KEYS: Item = {"id": {"S": "a"}}
OLD: Item = {**KEYS, "n": {"N": "1"}}
NEW: Item = {**KEYS, "n": {"N": "2"}}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (None, NEW, "INSERT"),
        (OLD, NEW, "MODIFY"),
        (OLD, None, "REMOVE"),
        (OLD, OLD, None),
        (None, None, None),
    ],
)
def test_a_change_is_named_by_what_was_there_before_and_after(
    old: Item | None, new: Item | None, name: str | None
) -> None:
    assert Change(KEYS, old, new).event_name == name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"N": "1"}, {"N": "1.0"}),
        ({"N": "100"}, {"N": "1e2"}),
        ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}),
        ({"NS": ["1", "2"]}, {"NS": ["2.0", "1"]}),
        ({"BS": ["MQ==", "Mg=="]}, {"BS": ["Mg==", "MQ=="]}),
        (
            {"M": {"x": {"N": "1"}, "y": {"S": ""}}},
            {"M": {"y": {"S": ""}, "x": {"N": "1.0"}}},
        ),
        ({"L": [{"SS": ["a", "b"]}]}, {"L": [{"SS": ["b", "a"]}]}),
    ],
)
def test_equal_values_written_differently_change_nothing(
    old: dict[str, object], new: dict[str, object]
) -> None:
    assert Change(KEYS, {"v": old}, {"v": new}).event_name is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"N": "1"}, {"S": "1"}),
        ({"BOOL": True}, {"N": "1"}),
        ({"L": [{"S": "a"}, {"S": "b"}]}, {"L": [{"S": "b"}, {"S": "a"}]}),
        ({"NULL": True}, {"BOOL": True}),
        # Numbers have 38 digits.
        ({"N": "1" * 38}, {"N": "1" * 37 + "2"}),
    ],
)
def test_values_of_another_type_or_order_are_a_change(
    old: dict[str, object], new: dict[str, object]
) -> None:
    assert Change(KEYS, {"v": old}, {"v": new}).event_name == "MODIFY"


@pytest.mark.parametrize(
    ("view", "parts"),
    [
        ("KEYS_ONLY", {"Keys": KEYS}),
        ("NEW_IMAGE", {"Keys": KEYS, "NewImage": NEW}),
        ("OLD_IMAGE", {"Keys": KEYS, "OldImage": OLD}),
        ("NEW_AND_OLD_IMAGES", {"Keys": KEYS, "NewImage": NEW, "OldImage": OLD}),
    ],
)
def test_a_view_type_selects_the_images(view: ViewType, parts: dict[str, Item]) -> None:
    content, size_bytes = images_of(Change(KEYS, OLD, NEW), view)
    assert content == parts
    assert size_bytes == sum(map(item_bytes, parts.values()))


def test_an_item_that_is_not_there_has_no_image() -> None:
    assert images_of(Change(KEYS, None, NEW), "OLD_IMAGE").content == {"Keys": KEYS}
    assert images_of(Change(KEYS, OLD, None), "NEW_IMAGE").content == {"Keys": KEYS}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "grün"}, 5),
        ({"N": "-12.50"}, 3),
        ({"N": "1000"}, 2),
        ({"B": "AAEC"}, 3),
        ({"BOOL": False}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["ab", "c"]}, 3),
        ({"NS": ["1", "22"]}, 4),
        ({"BS": ["AAEC", "AA=="]}, 4),
        ({"L": []}, 3),
        ({"L": [{"BOOL": True}, {"S": "a"}]}, 7),
        ({"M": {"k": {"S": "ab"}}}, 7),
    ],
)
def test_sizes_are_counted_as_dynamodb_does(
    value: dict[str, object], size: int
) -> None:
    assert item_bytes({"name": value}) == len("name") + size


def test_equal_keys_belong_to_one_partition() -> None:
    texts = {partition_text({"id": {"N": text}}, "id") for text in ("1", "1.0", "1e0")}
    assert len(texts) == 1
    assert partition_text({"id": {"S": "1"}}, "id") not in texts


def test_records_of_two_streams_have_different_ids() -> None:
    assert event_id("one", "1") != event_id("two", "1")
    assert event_id("one", "1") != event_id("one", "2")
