"""Take the pictures of docs/howto/report-and-ledger.md in Chromium, of the run of docs/howto/first-own-job.md.

    python tools/pages/report_pictures.py [--chromium PATH] [--report report.html]

Writes `report-card.png` and `report-scores.png` to docs/images, less than 150 kB each. Without ``--report`` it makes
the files of that page in an empty folder and types its three commands first, about a minute.

    python tools/pages/report_pictures.py --report report.html --look FOLDER

writes the whole page as somebody sees it at 1280, 500 and 400 pixels instead, to look at.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

__all__ = ["MOST", "PARTS", "WIDTHS", "make_report", "shrink", "take_picture"]

DOCS = Path(__file__).parents[2] / "docs"
MOST = 150_000
"""Bytes of a picture in the documentation."""
WIDTHS = (1280, 500, 400)
_TALL = 12_000
_COMMANDS = ("init bank.csv shop.csv", "check job.toml", "run job.toml")
_HIDE = "main > * {{ display: none !important; }} {shown} {{ display: {display} !important; }}"
PARTS = {
    "report-card": (
        1000,
        _HIDE.format(shown="main > .read", display="block") + "main > .cards { display: grid !important; }",
    ),
    "report-scores": (
        1280,
        _HIDE.format(shown="main > details[open]:has(.plots)", display="block")
        + "details[open] .confusion, details[open] .per-class, details h3:not(:first-of-type) { display: none; }",
    ),
}
"""Picture → the width of its window in pixels, and the style that leaves only what it shows of the page."""


def make_report(folder: Path) -> Path:
    """Make the files of the page in `folder` and type its three commands there; returns the report's path."""
    page = (DOCS / "howto" / "first-own-job.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)  # noqa: S603  # the page's own code
    for command in _COMMANDS:
        if f"$ securevfl {command}\n" not in page:
            raise SystemExit(f"docs/howto/first-own-job.md does not type: securevfl {command}")
        arguments = [sys.executable, "-m", "securevfl", *command.split()]
        subprocess.run(arguments, cwd=folder, check=True)  # noqa: S603  # no shell, commands of this file
    (report,) = folder.glob("runs/*/report.html")
    return report


def take_picture(chromium: str, report: Path, width: int, style: str = "") -> Image.Image:
    """The page in a window of `width` pixels, as high as its content.

    Args:
        chromium: the browser's program.
        report: the page.
        width: pixels.
        style: CSS that is added to a copy of the page.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy, shot = Path(folder, "page.html"), Path(folder, "page.png")
        text = report.read_text(encoding="utf-8")
        copy.write_text(text.replace("</head>", f"<style>{style}</style></head>", 1), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={width},{_TALL}"]
        command = [chromium, *options, f"--screenshot={shot}", copy.as_uri()]
        subprocess.run(command, check=True, timeout=300, stderr=subprocess.DEVNULL)  # noqa: S603  # no shell
        picture = Image.open(shot).convert("RGB")
    blank = Image.new("RGB", picture.size, picture.getpixel((0, picture.height - 1)))
    found = ImageChops.difference(picture, blank).getbbox()
    if found is None:
        raise SystemExit(f"{report}: nothing of the page is shown at {width} pixels")
    return picture.crop((0, 0, picture.width, min(found[3] + 16, picture.height)))


def shrink(picture: Image.Image) -> bytes:
    """As a PNG of 128 colours, trimmed of the empty space around it."""
    blank = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    left, top, right, bottom = ImageChops.difference(picture, blank).getbbox() or (0, 0, *picture.size)
    cut = picture.crop(
        (max(left - 12, 0), max(top - 12, 0), min(right + 12, picture.width), min(bottom + 12, picture.height))
    )
    content = io.BytesIO()
    cut.quantize(128, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    return content.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", default="chromium", help="the browser's program")
    parser.add_argument("--report", type=Path, help="a report.html that is there")
    parser.add_argument("--look", type=Path, help="a folder for pictures of the whole page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = options.report or make_report(Path(folder))
        if options.look:
            options.look.mkdir(parents=True, exist_ok=True)
            for width in WIDTHS:
                take_picture(options.chromium, report, width).save(options.look / f"{report.stem}-{width}.png")
            return
        for name, (width, style) in PARTS.items():
            content = shrink(take_picture(options.chromium, report, width, style))
            if len(content) > MOST:
                raise SystemExit(f"{name}.png has {len(content):,} bytes, more than {MOST:,}")
            (DOCS / "images" / f"{name}.png").write_bytes(content)
            print(f"docs/images/{name}.png: {len(content):,} bytes")


if __name__ == "__main__":
    main()
