"""Prometheus metrics of a party's process, on a port of this machine only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from securevfl_net.link_state import LinkState

from securevfl.errors import InputError
from securevfl.party_context import Observer
from securevfl.process.log_fields import FIELDS
from securevfl.run.events import RunEvents
from securevfl.transport import Scalar

__all__ = ["TrainingMetrics", "serve_metrics"]

_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Buckets of the histogram of steps, in seconds: a plain step takes a few milliseconds, a sealed one up to minutes."""
LOOPBACK = "127.0.0.1"


_LINKS: tuple[tuple[str, str, str, Callable[[LinkState], float | None]], ...] = (
    ("gauge", "connected", "Whether the peer is connected.", lambda state: state.connected),
    ("counter", "reconnects", "Connections to the peer after the first one.", lambda s: max(s.connections - 1, 0)),
    ("counter", "sent_bytes", "Bytes of messages to the peer.", lambda state: state.sent),
    ("counter", "received_bytes", "Bytes of messages from the peer.", lambda state: state.received),
    ("gauge", "round_trip_seconds", "Of the last ping.", lambda state: state.round_trip),
    ("gauge", "silent_seconds", "Since anything came from the peer.", lambda state: state.silent),
    ("gauge", "blocked", "Whether the peer gives no room for what waits.", lambda state: state.blocked),
)
"""For each link: kind, name, help text, value."""


class TrainingMetrics(RunEvents, Observer):
    """Metrics of a party's process: receives a runner's events, observes its training, and reads the state of its
    links.

    Nothing in it depends on a row, a label or a score: no loss, no class, no count of rows.

    Args:
        party: whose process it is.
        version: of the package.
    """

    accounting = True

    def __init__(self, party: str, version: str) -> None:
        self.party = party
        self.version = version
        self.links: Mapping[str, LinkState] = {}
        self.epsilon: Mapping[str, float] = {}
        self._steps = 0
        self._epoch = 0
        self._before: float | None = None
        self._times = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0
        self._events: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def links_changed(self, links: Mapping[str, LinkState]) -> None:
        """See `RunEvents.links_changed`."""
        self.links = dict(links)

    def epsilon_spent(self, party: str, epsilon: Mapping[str, float]) -> None:
        """See `Observer.epsilon_spent`."""
        self.epsilon = dict(epsilon)

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        """See `RunEvents.report_event`."""
        self._events[what] += 1
        if what == "refused":
            self._refused[str(FIELDS["code"](values.get("code")) or "other")] += 1
        if what in ("attempt", "parked"):
            self._before = None

    def phase(self, name: str) -> None:
        self._before = time.monotonic()

    def step(self, epoch: int, done: int, total: int) -> None:
        now = time.monotonic()
        self._steps += 1
        self._epoch = epoch
        if self._before is not None:
            took = now - self._before
            self._seconds += took
            self._times[sum(took > bound for bound in _BOUNDS)] += 1
        self._before = now

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        self._epoch = epoch
        self._before = time.monotonic()

    def collect(self) -> Iterable[Any]:
        """The metrics as `prometheus_client` takes them from a collector, in another thread than the program's."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        def counter_family(name: str, words: str, value: float) -> Any:
            return CounterMetricFamily(f"securevfl_{name}", words, value=value)

        def labelled_family(kind: Any, name: str, words: str, label: str, values: Mapping[str, float | None]) -> Any:
            family = kind(f"securevfl_{name}", words, labels=[label])
            for key, value in values.items():
                if value is not None:
                    family.add_metric([key], value)
            return family

        links, events = self.links, self._events.copy()
        about = GaugeMetricFamily("securevfl_info", "Which party and version.", labels=["party", "version"])
        about.add_metric([self.party, self.version], 1)
        yield about
        yield counter_family("steps", "Training steps of this process.", self._steps)
        yield GaugeMetricFamily("securevfl_epoch", "Epoch of the last step.", value=self._epoch)
        times, total = [], 0
        for bound, count in zip([*map(str, _BOUNDS), "+Inf"], list(self._times), strict=True):
            total += count
            times.append((bound, total))
        yield HistogramMetricFamily("securevfl_step_seconds", "Seconds of a step.", times, self._seconds)
        yield counter_family("attempts", "Attempts that this process began.", events["attempt"])
        yield counter_family("parked", "Attempts that were parked.", events["parked"])
        yield labelled_family(CounterMetricFamily, "refused", "Refused connections.", "code", {**self._refused.copy()})
        for kind, name, words, of in _LINKS:
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            yield labelled_family(family, name, words, "peer", {peer: of(state) for peer, state in links.items()})
        yield labelled_family(
            GaugeMetricFamily, "epsilon", "What this party's releases cost.", "release", {**self.epsilon}
        )


@contextmanager
def serve_metrics(collector: Any, port: int, *, host: str = LOOPBACK) -> Iterator[int]:
    """Serve metrics as text at ``/metrics``, as long as the block lasts.

    Args:
        collector: whatever `prometheus_client` collects from: `TrainingMetrics`, or a registry.
        port: to listen at; 0 for one that is free.
        host: to listen at; loopback, unless other machines may read the metrics.

    Yields:
        The port.

    Raises:
        InputError: the port is taken, or `prometheus-client` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise InputError('metrics need prometheus-client: pip install "securevfl[serve]"') from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise InputError(f"port {port} of {host} cannot be opened ({words}): choose another, or 0") from None
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
