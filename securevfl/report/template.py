"""Filling the templates of the two HTML pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["fill"]


def fill(template: str, filters: Mapping[str, Callable[..., str]], **values: Any) -> str:
    """The text of a page.

    Args:
        template: file name in `templates/`.
        filters: name in the template → function of a value.
        values: what the template shows; a name that it needs and that is missing raises `jinja2.UndefinedError`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("securevfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template).render(**values)
