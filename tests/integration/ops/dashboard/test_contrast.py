"""Test the contrast of the page's colours in both themes."""

from __future__ import annotations

import re
from importlib import resources

import pytest

STYLE = (
    resources.files("kinesumer.ops.dashboard").joinpath("static/page.css").read_text()
)
LIGHT, DARK = STYLE.split("@media (prefers-color-scheme: dark)")[:2]
AA = 4.5

TEXT = ["ink", "soft", "accent", "good", "warn", "bad"]
PAIRS = [
    *((text, ground) for text in TEXT for ground in ("card", "page")),
    *(("ink", f"{tone}-wash") for tone in ("good", "warn", "bad")),
    *((tone, f"{tone}-wash") for tone in ("good", "warn", "bad")),
    ("ink", "faint"),
    ("soft", "faint"),
    ("card", "ink"),
    ("card", "accent"),
    *(("on-hue", f"hue-{hue}") for hue in range(8)),
]


def colours(style: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z0-9-]+): #([0-9a-f]{6});", style))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [colours(LIGHT), colours(LIGHT) | colours(DARK)])
def test_text_and_hues_have_the_contrast_of_wcag_aa(theme: dict[str, str]) -> None:
    for text, ground in PAIRS:
        assert contrast(theme[text], theme[ground]) >= AA, (text, ground)
    for hue in range(8):
        assert contrast(theme[f"hue-{hue}"], theme["card"]) >= 3
        assert contrast(theme[f"stream-{hue}"], theme["card"]) >= 3
