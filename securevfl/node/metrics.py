"""A node's metrics for Prometheus: a line for each agreement. The agreements' own are those of their processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from securevfl.node.record import Stage

__all__ = ["NodeMetrics"]


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
