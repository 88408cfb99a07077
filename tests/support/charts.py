"""Render the Helm charts of `deploy/helm`: they use nothing but `{{ .Values.name }}`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHARTS", "read_values", "render_chart", "used_values"]

CHARTS = Path(__file__).parents[2] / "deploy" / "helm"


def read_values(chart: str) -> dict[str, Any]:
    """A chart's default values."""
    found: dict[str, Any] = yaml.safe_load((CHARTS / chart / "values.yaml").read_text(encoding="utf-8"))
    return found


def used_values(chart: str) -> set[str]:
    """The values that its templates use."""
    texts = (path.read_text(encoding="utf-8") for path in (CHARTS / chart / "templates").iterdir())
    return {name for text in texts for name in re.findall(r"\.Values\.(\w+)", text)}


def render_chart(chart: str, **values: object) -> dict[str, dict[str, Any]]:
    """Name of a template → its document.

    Args:
        chart: its folder's name.
        values: in place of the default ones.
    """
    known = read_values(chart) | values
    found = {}
    for path in sorted((CHARTS / chart / "templates").iterdir()):
        rendered = re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda at: str(known[at[1]]), path.read_text(encoding="utf-8"))
        if "{{" in rendered:
            raise ValueError(f"{path.name} uses more of Helm's language than {{{{ .Values.name }}}}")
        found[path.name] = yaml.safe_load(rendered)
    return found
