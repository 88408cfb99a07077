"""What the operator sees of a node, and its metrics: the status of its daemon, or what it stored before it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text
from securevfl_net.durable import is_held
from securevfl_net.exit_codes import CODES

from securevfl.errors import InputError
from securevfl.node.node_file import read_entries, read_node
from securevfl.node.record import Stage

__all__ = ["NodeMetrics", "listing_table", "read_listing"]

_TOPICS = {one.number: one.topic for one in CODES}


def read_listing(folder: Path) -> dict[str, Any]:
    """The latest status of a node, with ``"alive"``: whether its daemon runs. An entry that no daemon saw is *new*.

    Raises:
        InputError: there is no node, or its status cannot be read.
    """
    read_node(folder)
    path = folder / "status.json"
    found: dict[str, Any] = {"agreements": {}}
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not isinstance(found.get("agreements"), dict):
            raise ValueError("it has no agreements")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): start the node again, which rewrites it") from None
    found["alive"] = is_held(folder)
    for name in read_entries(folder):
        found["agreements"].setdefault(name, {"stage": "new", "reason": "", "code": None, "phase": "", "waits": []})
    for row in found["agreements"].values():
        row["topic"] = _TOPICS.get(row["code"], "") if row["code"] is not None else ""
    return found


def listing_table(found: Mapping[str, Any]) -> Table:
    """A row for each agreement, in the order of the queue."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("agreement", "stage", "what"):
        table.add_column(column, overflow="fold")
    for name, row in found["agreements"].items():
        table.add_row(Text(name), row["stage"], Text(_describe(row)))
    return table


def _describe(row: Mapping[str, Any]) -> str:
    if row["stage"] in ("running", "serving"):
        away = f"waits for {', '.join(row['waits'])}" if row["waits"] else ""
        return "; ".join(word for word in (str(row["phase"]), away) if word)
    if row["stage"] == "a person must act":
        return f"exit code {row['code']} ({row['topic']}): {row['reason']}"
    return str(row["reason"])


class NodeMetrics:
    """What `prometheus_client` collects from.

    Args:
        status: the node's latest, see `Node.status`.

    Attributes:
        more: further collectors, called with the status: each yields families.
    """

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status
        self.more: list[Callable[[Mapping[str, Any]], Iterable[Any]]] = []

    def collect(self) -> Iterable[Any]:
        """The families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = self._status()
        rows: Mapping[str, Any] = found.get("agreements", {})
        stage = GaugeMetricFamily(
            "securevfl_node_agreement", "1 for the stage of each agreement.", labels=["name", "stage"]
        )
        starts = CounterMetricFamily("securevfl_node_starts", "Processes started.", labels=["name"])
        code = GaugeMetricFamily("securevfl_node_exit_code", "Of the last process that ended.", labels=["name"])
        away = GaugeMetricFamily("securevfl_node_peers_away", "Peers not connected.", labels=["name"])
        for name, row in rows.items():
            for one in Stage:
                stage.add_metric([name, one.name.lower()], float(row["stage"] == one))
            starts.add_metric([name], row["starts"])
            if row["code"] is not None:
                code.add_metric([name], row["code"])
            away.add_metric([name], len(row["waits"]))
        calls = found.get("calls", {"handed over": 0, "refused": {}})
        handed = CounterMetricFamily("securevfl_node_calls", "Calls by what became of them.", labels=["result"])
        handed.add_metric(["handed_over"], calls["handed over"])
        handed.add_metric(["refused"], sum(calls["refused"].values()))
        yield from (stage, starts, code, away, handed)
        for collect in self.more:
            yield from collect(found)
