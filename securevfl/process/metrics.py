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
from securevfl.process.metric_names import METRICS, metric_family
from securevfl.run.events import BoundsLeft, RunEvents
from securevfl.transport import Scalar

__all__ = ["TrainingMetrics", "bounds_families", "link_families", "serve_metrics"]

_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Buckets of the histogram of steps, in seconds: a plain step takes a few milliseconds, a sealed one up to minutes."""
LOOPBACK = "127.0.0.1"


_LINKS: Mapping[str, Callable[[LinkState], float | None]] = {
    "connected": lambda state: state.connected,
    "reconnects": lambda state: max(state.connections - 1, 0),
    "sent_bytes": lambda state: state.sent,
    "received_bytes": lambda state: state.received,
    "round_trip_seconds": lambda state: state.round_trip,
    "silent_seconds": lambda state: state.silent,
    "blocked": lambda state: state.blocked,
}
"""Name of `METRICS` → its value for a link."""
_STAGES = ("parked", "finished", "done", "ended")
"""Events that begin a phase."""


def link_families(links: Mapping[str, LinkState]) -> Iterator[Any]:
    """Metrics of all connections.

    Args:
        links: peer → the state of its connection.
    """
    for name, value_of in _LINKS.items():
        yield metric_family(name, {(peer,): value_of(state) for peer, state in links.items()})


def bounds_families(left: BoundsLeft | None, epsilon: Mapping[str, float]) -> Iterator[Any]:
    """Metrics of what is left of a party's bounds, at this moment.

    Args:
        left: as it was read last; None before that.
        epsilon: release → what it costs so far.
    """
    yield metric_family("epsilon", {(about,): value for about, value in epsilon.items()})
    if left is None:
        return
    now = time.time()
    yield metric_family("certificate_seconds", {(party,): end - now for party, end in left.certificates.items()})
    yield metric_family("revocation_list_seconds", {(peer,): end - now for peer, end in left.lists.items()})
    yield metric_family("agreement_seconds", left.agreement - now)
    yield metric_family("attempts_left", left.attempts)
    yield metric_family("attempt_seconds_left", left.seconds)
    if left.epsilon is not None:
        bound = left.epsilon
        yield metric_family("epsilon_bound", bound)
        yield metric_family("epsilon_left", {(about,): bound - value for about, value in epsilon.items()})
    yield metric_family("results_left", {(peer,): value for peer, value in left.results.items()})
    yield metric_family("metric_sets", {(peer,): value for peer, value in left.metric_sets.items()})
    free, size = left.disk
    yield metric_family("disk_free_bytes", free)
    yield metric_family("disk_bytes", size)


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
        self.left: BoundsLeft | None = None
        self._phase = "connecting", time.monotonic()
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

    def bounds_changed(self, left: BoundsLeft) -> None:
        """See `RunEvents.bounds_changed`."""
        self.left = left

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
        if what in _STAGES:
            self._phase = what, time.monotonic()

    def phase(self, name: str) -> None:
        self._before = time.monotonic()
        self._phase = name, self._before

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
        from prometheus_client.core import HistogramMetricFamily

        events, (phase, since) = self._events.copy(), self._phase
        yield metric_family("info", {(self.party, self.version): 1})
        yield metric_family("steps", self._steps)
        yield metric_family("epoch", self._epoch)
        times, total = [], 0
        for bound, count in zip([*map(str, _BOUNDS), "+Inf"], list(self._times), strict=True):
            total += count
            times.append((bound, total))
        yield HistogramMetricFamily("securevfl_step_seconds", METRICS["step_seconds"].words, times, self._seconds)
        yield metric_family("attempts", events["attempt"])
        yield metric_family("parked", events["parked"])
        yield metric_family("phase_seconds", {(phase,): time.monotonic() - since})
        yield metric_family("refused", {(code,): count for code, count in self._refused.copy().items()})
        yield from link_families(self.links)
        yield from bounds_families(self.left, dict(self.epsilon))


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
