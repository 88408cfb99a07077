"""Prometheus metrics on a separate port: how many requests and how fast, never for whom, nor which class.

Scores and classes are left out on purpose: with few requests, the number of customers of a class in one minute
discloses single ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from securevfl.process.metric_names import METRICS, metric_family
from securevfl.process.metrics import bounds_families, link_families
from securevfl.run.events import BoundsLeft
from securevfl.run.machine import package_versions
from securevfl.serving.serving_sessions import SessionServer
from securevfl.serving.session import PartyServer

__all__ = ["ServingMetrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _State:
    """Reads the server's state when it is asked for."""

    def __init__(self, server: SessionServer, version: str) -> None:
        self._server = server
        self._version = version
        self.left: BoundsLeft | None = None

    def collect(self) -> Iterator[Any]:
        """See `prometheus_client.registry.Collector`."""
        server = self._server
        yield metric_family("info", {(server.mesh.me, self._version): 1})
        links = server.mesh.link_states()
        yield from link_families({peer: replace(one, connected=peer not in server.away) for peer, one in links.items()})
        yield metric_family("sessions", server.sessions)
        yield from bounds_families(self.left, {})
        if not isinstance(server, PartyServer):
            return
        yield metric_family("ready", float(server.is_ready))
        rows, most = server.counts.rows, server.counts.policy.rows_per_day
        yield metric_family("rows_today", rows)
        if most is not None:
            yield metric_family("rows_today_left", max(most - rows, 0))
        epsilon = server.epsilon_today()
        if epsilon is not None:
            yield metric_family("epsilon_today", epsilon)


class ServingMetrics:
    """Metrics of one server: counters, and its state at the time of a scrape.

    Args:
        server: whose state the metrics include.

    Attributes:
        registry: of all of them.
        requests: by path and status.
        seconds: of a request, by path.
        rows: scored, by model.
        refusals: by party and rule.
        limited: requests that a limit per client or per customer turned away, by which.
    """

    def __init__(self, server: SessionServer) -> None:
        self.registry = CollectorRegistry()
        self._state = _State(server, package_versions().get("securevfl", "0"))
        self.registry.register(self._state)
        self.requests: Counter = self._make(Counter, "requests")
        self.seconds: Histogram = self._make(Histogram, "request_seconds", buckets=_SECONDS)
        self.rows: Counter = self._make(Counter, "rows")
        self.refusals: Counter = self._make(Counter, "refusals")
        self.limited: Counter = self._make(Counter, "limited")
        self.running: Gauge = self._make(Gauge, "requests_running")

    def _make(self, kind: Any, name: str, **more: Any) -> Any:
        about = METRICS[name]
        return kind(f"securevfl_{name}", about.words, about.labels, registry=self.registry, **more)

    def bounds_changed(self, left: BoundsLeft) -> None:
        """Receive what is left of the party's bounds; see `RunEvents.bounds_changed`."""
        self._state.left = left
