"""The pictures of the report's page: there, light, shown, and of the commands that the page before types."""

from __future__ import annotations

import re

import report_pictures as tool
from PIL import Image


def test_its_page_shows_each_picture_and_each_is_light() -> None:
    page = (tool.DOCS / "howto" / "report-and-ledger.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\.\./images/([\w-]+)\.png", page)) == set(tool.PARTS)
    for name, (width, _) in tool.PARTS.items():
        path = tool.DOCS / "images" / f"{name}.png"
        assert path.stat().st_size < tool.MOST
        with Image.open(path) as picture:
            assert picture.width <= width + 24


def test_a_picture_is_trimmed_and_has_few_colours() -> None:
    blank = Image.new("RGB", (400, 300), "white")
    blank.paste((10, 90, 200), (100, 50, 200, 120))
    content = tool.shrink(blank)
    assert content[:4] == b"\x89PNG"
    assert len(content) < 1000
    assert int.from_bytes(content[16:20], "big") == 100 + 2 * 12
    assert int.from_bytes(content[20:24], "big") == 70 + 2 * 12
