"""What metrics may show: a closed list of names, each with its kind, its label and the shapes of the label's values.

Metrics leave a party's machine, like its logs: nothing in them depends on a row, a label or a score. A label's value is
a party's name, a code of a known form, or one of a program's own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from securevfl_net.fields.names import explain_bad_name

from securevfl.process.log_fields import CANDIDATE, FIELDS, Shape, match_pattern

__all__ = ["LABELS", "METRICS", "Metric", "metric_family", "sample_names"]

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        kind: as Prometheus calls it.
        words: its help text.
        labels: names of its labels, of `LABELS`.
    """

    kind: Kind
    words: str
    labels: tuple[str, ...] = ()


def _check_name(value: object) -> object:
    return value if isinstance(value, str) and not explain_bad_name(value) else None


_WORD = match_pattern(r"[a-z][a-z_]{0,39}(-[a-z]{1,40}){0,7}")

LABELS: Mapping[str, Shape] = {
    "code": FIELDS["code"],
    "limit": match_pattern(r"address|client|customer"),
    "model": match_pattern(r"joint|local"),
    "party": _check_name,
    "path": match_pattern(r"other|/[a-z0-9/]{1,60}"),  # a route of this program, never what was asked
    "peer": _check_name,
    "phase": match_pattern(
        r"connecting|consent|alignment|setup|training|test|heads|serving|parked|finished|done|ended|" + CANDIDATE
    ),
    "release": _WORD,
    "rule": _WORD,
    "status": match_pattern(r"[1-5][0-9]{2}"),
    "version": match_pattern(r"[0-9]+(\.[0-9a-z+]+){0,5}"),
}
"""Label → the shape of its values."""

METRICS: Mapping[str, Metric] = {
    "info": Metric("gauge", "Which party and version.", ("party", "version")),
    # What a party does.
    "steps": Metric("counter", "Training steps of this process."),
    "epoch": Metric("gauge", "Epoch of the last step."),
    "step_seconds": Metric("histogram", "Seconds of a step."),
    "attempts": Metric("counter", "Attempts that this process began."),
    "parked": Metric("counter", "Attempts that were parked."),
    "phase_seconds": Metric("gauge", "Seconds since the phase began that the party is in.", ("phase",)),
    # Its connections.
    "connected": Metric("gauge", "Whether the peer is connected.", ("peer",)),
    "reconnects": Metric("counter", "Connections to the peer after the first one.", ("peer",)),
    "sent_bytes": Metric("counter", "Bytes of messages to the peer.", ("peer",)),
    "received_bytes": Metric("counter", "Bytes of messages from the peer.", ("peer",)),
    "round_trip_seconds": Metric("gauge", "Of the last ping.", ("peer",)),
    "silent_seconds": Metric("gauge", "Since anything came from the peer.", ("peer",)),
    "blocked": Metric("gauge", "Whether the peer gives no room for what waits.", ("peer",)),
    "refused": Metric("counter", "Refused connections.", ("code",)),
    # What is left.
    "certificate_seconds": Metric("gauge", "Until a party's certificate ends; below 0 it has ended.", ("party",)),
    "revocation_list_seconds": Metric("gauge", "Until the list of revoked certificates is too old.", ("peer",)),
    "agreement_seconds": Metric("gauge", "Until the agreement ends."),
    "attempts_left": Metric("gauge", "Attempts that may still begin."),
    "attempt_seconds_left": Metric("gauge", "Seconds that attempts may still take."),
    "epsilon": Metric("gauge", "What this party's releases cost.", ("release",)),
    "epsilon_bound": Metric("gauge", "The largest ε that each of its releases may reach."),
    "epsilon_left": Metric("gauge", "The bound less what the releases cost.", ("release",)),
    "results_left": Metric("gauge", "Numbers that the peer may get about the person of whom it has most.", ("peer",)),
    "metric_sets": Metric("gauge", "Sets of validation metrics that were opened to the peer.", ("peer",)),
    "disk_free_bytes": Metric("gauge", "Free on the disk of the state folder."),
    "disk_bytes": Metric("gauge", "Size of the disk of the state folder."),
    # A server.
    "ready": Metric("gauge", "Whether a model is served."),
    "standby": Metric("gauge", "1 while the process waits for the state folder of another one."),
    "sessions": Metric("counter", "Sessions that this server began."),
    "rows_today": Metric("gauge", "Rows scored since midnight UTC."),
    "rows_today_left": Metric("gauge", "Rows that the policy still allows until midnight UTC."),
    "epsilon_today": Metric("gauge", "ε of today's releases of the person who was released most often."),
    "requests": Metric("counter", "HTTP requests.", ("path", "status")),
    "request_seconds": Metric("histogram", "Seconds of a request.", ("path",)),
    "requests_running": Metric("gauge", "Requests being answered."),
    "rows": Metric("counter", "Customers that were scored.", ("model",)),
    "refusals": Metric("counter", "Customers that a serving policy refused.", ("party", "rule")),
    "limited": Metric("counter", "Requests over a limit.", ("limit",)),
}
"""Name, after ``securevfl_`` → the metric. Prometheus appends ``_total`` to the names of counters."""


def metric_family(name: str, values: float | Mapping[tuple[str, ...], float | None]) -> Any:
    """A metric as `prometheus_client` takes it from a collector.

    Args:
        name: of `METRICS`; no histogram.
        values: its value; or for each tuple of values of its labels, None where there is none. A label whose value has
            not its shape is left out.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    about = METRICS[name]
    family_of = CounterMetricFamily if about.kind == "counter" else GaugeMetricFamily
    if not isinstance(values, Mapping):
        return family_of(f"securevfl_{name}", about.words, value=values)
    family = family_of(f"securevfl_{name}", about.words, labels=about.labels)
    for key, value in values.items():
        fits = all(LABELS[label](text) is not None for label, text in zip(about.labels, key, strict=True))
        if value is not None and fits:
            family.add_metric(key, value)
    return family


def sample_names() -> set[str]:
    """The names that a scrape shows and an expression may use."""
    found = set()
    for name, about in METRICS.items():
        endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}[about.kind]
        found |= {f"securevfl_{name}{ending}" for ending in endings}
    return found
