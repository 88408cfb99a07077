"""The tables of docs/howto/mistakes.md: what the terminal says of each mistake, from making it.

python tools/pages/mistakes_page.py    makes all and writes them into the page; a test holds that it has them.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT / "tests") not in sys.path:
    sys.path.insert(0, str(ROOT / "tests"))

from support.mistakes import MISTAKES, Mistake, make_company  # noqa: E402

__all__ = ["PAGE", "Said", "main", "make_all", "quote_message", "written"]

PAGE = ROOT / "docs" / "howto" / "mistakes.md"
Said = Mapping[str, tuple[int, str]]
"""What a mistake is → the exit code, and what the terminal says."""
_BLOCK = re.compile(r"(<!-- mistakes: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_USUAL = "check job.toml"
"""What is typed unless the table says so."""
_CHANGING = (
    (re.compile(r"^\d\d:\d\d:\d\d +"), ""),
    (re.compile(r"ed25519:[\w-]{20,}"), "ed25519:…"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "…"),
)
"""What differs from run to run."""


def make_all(folder: Path) -> Said:
    """Make every mistake, each in its own copy of a folder that is right."""
    make_company(folder / "right")
    every = [one for some in MISTAKES.values() for one in some]
    return {one.what: one.make(folder / "right", folder / str(number)) for number, one in enumerate(every)}


def quote_message(mistake: Mistake, said: str) -> str:
    """The line that is about the mistake, without what differs from run to run."""
    lines = [line.strip() for line in said.splitlines()]
    about = [line for line in lines if mistake.value in line and mistake.cure in line]
    line = (about or [line for line in lines if mistake.cure in line] or [""])[-1]
    for pattern, instead in _CHANGING:
        line = pattern.sub(instead, line)
    return line


def _table(some: list[Mistake], said: Said) -> str:
    rows = ["| mistake | the terminal says | exit code |", "|---|---|---|"]
    for one in some:
        code, output = said[one.what]
        message = quote_message(one, output).replace("|", "\\|")
        typed = "" if one.command == _USUAL else f": `{one.command}`"
        rows.append(f"| {one.what}{typed} | ``{message}`` | {code} |")
    return "\n".join(rows)


def written(page: str, said: Said) -> str:
    """The page with these tables."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{_table(MISTAKES[found[2]], said)}\n\n{found[3]}", page)


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        said = make_all(Path(folder).resolve())
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), said), encoding="utf-8")


if __name__ == "__main__":
    main()
