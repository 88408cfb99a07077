"""Prometheus metrics on a separate port: how many requests and how fast, never for whom, nor which class.

Scores and classes are left out on purpose: with few requests, the number of customers of a class in one minute
discloses single ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from securevfl.serving.session import PartyServer

__all__ = ["ServingMetrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _State:
    """Reads the server's state when it is asked for."""

    def __init__(self, server: PartyServer) -> None:
        self._server = server

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See `prometheus_client.registry.Collector`."""
        server = self._server
        peers = GaugeMetricFamily("securevfl_peer_connected", "whether a peer is connected", labels=["peer"])
        sent = GaugeMetricFamily("securevfl_peer_sent_bytes", "bytes of messages sent to a peer", labels=["peer"])
        got = GaugeMetricFamily("securevfl_peer_received_bytes", "bytes of messages from a peer", labels=["peer"])
        for peer, link in server.mesh.link_states().items():
            peers.add_metric([peer], 0.0 if peer in server.away else 1.0)
            sent.add_metric([peer], float(link.sent))
            got.add_metric([peer], float(link.received))
        yield from (peers, sent, got)
        yield GaugeMetricFamily("securevfl_ready", "whether a model is served", value=float(server.is_ready))
        yield GaugeMetricFamily(
            "securevfl_rows_today", "rows scored since midnight UTC", value=float(server.counts.rows)
        )
        epsilon = server.epsilon_today()
        if epsilon is not None:
            words = "ε of today's releases of the person who was released most often"
            yield GaugeMetricFamily("securevfl_epsilon_today", words, value=epsilon)


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

    def __init__(self, server: PartyServer) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_State(server))
        more: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("securevfl_requests", "HTTP requests", ["path", "status"], **more)
        self.seconds = Histogram("securevfl_request_seconds", "time of a request", ["path"], buckets=_SECONDS, **more)
        self.rows = Counter("securevfl_rows", "customers that were scored", ["model"], **more)
        self.refusals = Counter(
            "securevfl_refusals", "customers that a serving policy refused", ["party", "rule"], **more
        )
        self.limited = Counter("securevfl_limited", "requests over a limit", ["limit"], **more)
        self.running = Gauge("securevfl_requests_running", "requests being answered", **more)
