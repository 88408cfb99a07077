"""The maker of all HTML pages: a template in `templates/`, over one frame and one style."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl_net.durable import make_folder, write_atomic

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["fill_template", "write_files"]


def fill_template(template: str, title: str, filters: Mapping[str, Callable[..., str]], **values: Any) -> str:
    """The text of a page.

    Args:
        template: file name in `templates/`; it extends ``page.html.j2``.
        title: of the page.
        filters: name in the template → function of a value, of a module: the compiled template is kept by them.
        values: what the template shows.

    Raises:
        jinja2.UndefinedError: the template needs a name that is missing.
    """
    return _compile_template(template, tuple(sorted(filters.items()))).render(title=title, **values)


@lru_cache(maxsize=16)
def _compile_template(template: str, filters: tuple[tuple[str, Callable[..., str]], ...]) -> Template:
    """Compile once in a process: this takes longer than filling in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("securevfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files in order, each complete or not at all.

    Args:
        folder: created if it is missing.
        files: name → content.
    """
    make_folder(folder)
    for name, content in files.items():
        write_atomic(folder / name, content)
