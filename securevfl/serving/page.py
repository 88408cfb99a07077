"""Render the OpenAPI description as one HTML page that loads nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["render_page"]

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
    "h2{margin-top:2rem;font:600 1.1rem ui-monospace,monospace}pre{background:#f4f4f4;padding:.8rem;overflow:auto}"
    "td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
)


def render_page(description: Mapping[str, Any]) -> str:
    """The page.

    Args:
        description: as FastAPI makes it; the page links to it at ``openapi.json``.
    """
    schemas = description.get("components", {}).get("schemas", {})
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(description['info']['title'])}</title>",
        f"<style>{_STYLE}</style><h1>{escape(description['info']['title'])}</h1>",
        f"<p>{escape(description['info'].get('description', ''))}</p>",
        '<p>For tools: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            parts.append(_render_operation(method, path, operation, schemas))
    return "\n".join(parts) + "</html>"


def _render_operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    lines = [f"<h2>{escape(method.upper())} {escape(path)}</h2>", f"<p>{escape(operation.get('description', ''))}</p>"]
    if body is not None:
        lines.append(f"<pre>{escape(json.dumps(_resolve_schema(body, schemas), indent=1))}</pre>")
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer.get('description', ''))}</td></tr>"
        for status, answer in sorted(operation["responses"].items())
    )
    lines.append(f"<table>{rows}</table>")
    return "\n".join(lines)


def _resolve_schema(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> object:
    """A schema's properties in place of its name."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return dict(schemas.get(name, schema)).get("properties", schema)
