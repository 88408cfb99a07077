"""OpenTelemetry traces of a party: how long attempts, phases, epochs, exchanges and served batches took.

A trace leaves the machine, like logs and metrics, and follows the rule of logs: an attribute is a field of
`securevfl.process.log_fields`, so a party's name, a code or a number that does not depend on data. No error's text is
recorded, and no identifier, loss or score. Nothing about traces crosses to a peer: each party has its own, and the
agreement's first digits join them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from securevfl.errors import InputError
from securevfl.party_context import Observer
from securevfl.process.log_fields import LogFields
from securevfl.run.events import RunEvents
from securevfl.transport import Kind, Scalar

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

__all__ = ["SPANS", "TraceEvents", "open_traces"]

SPANS = ("attempt", "phase", "epoch", "exchange", "batch")
"""The names of spans, after ``securevfl.``: a closed list, and so are their attributes."""
_ENDINGS = ("parked", "finished", "done", "ended")


@dataclass
class _Exchange:
    """Messages of one kind to or from one peer, in one phase or epoch."""

    first: int
    last: int = 0
    count: int = 0


@dataclass
class _Open:
    """A span that goes on, and the exchanges in it."""

    span: Span
    exchanges: dict[tuple[str, str, Kind], _Exchange] = field(default_factory=dict)


class TraceEvents(RunEvents, Observer):
    """Receives events of a run or a server, and makes spans of them.

    Args:
        fields: what attributes may contain.
        agreement: the first digits of its SHA-256, hexadecimal; an attribute of every span.
        provider: of OpenTelemetry's SDK; exports the spans.
    """

    counting = True

    def __init__(self, fields: LogFields, agreement: str, provider: TracerProvider) -> None:
        self._fields = fields
        self._always = {"party": fields.party, **fields.filter_values({"agreement": agreement})}
        self._tracer = provider.get_tracer("securevfl")
        self._attempt: _Open | None = None
        self._phase: _Open | None = None
        self._epoch: _Open | None = None
        self._in_training = False

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        """See `RunEvents.report_event`."""
        if what == "attempt":
            self.close()
            self._attempt = self._begin("attempt", None, attempt=values.get("attempt"))
        elif what in _ENDINGS:
            self.close(what)

    def phase(self, name: str) -> None:
        self._end_epoch()
        self._end(self._phase)
        self._phase = self._begin("phase", self._attempt, phase=name)
        self._in_training = name == "training"

    def step(self, epoch: int, done: int, total: int) -> None:
        if self._epoch is None and self._in_training:
            self._epoch = self._begin("epoch", self._phase, epoch=epoch)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        self._end_epoch()

    def message_counted(self, peer: str, way: Literal["sent", "received"], kind: Kind) -> None:
        """See `Observer.message_counted`."""
        at = self._epoch or self._phase
        if at is not None:
            now = time.time_ns()
            one = at.exchanges.get((peer, way, kind))
            if one is None:
                one = at.exchanges[peer, way, kind] = _Exchange(now)
            one.last = now
            one.count += 1

    def batch_served(self, seconds: float) -> None:
        """See `RunEvents.batch_served`."""
        now = time.time_ns()
        span = self._tracer.start_span(
            "securevfl.batch", start_time=now - int(seconds * 1e9), attributes=self._attributes()
        )
        span.end(now)

    def close(self, event: str = "") -> None:
        """End what goes on.

        Args:
            event: why, one of the log's.
        """
        self._end_epoch()
        self._end(self._phase)
        if self._attempt is not None and event:
            self._attempt.span.set_attribute("securevfl.outcome", self._fields.known_event(event))
        self._end(self._attempt)
        self._attempt = self._phase = None
        self._in_training = False

    def _attributes(self, **values: Any) -> dict[str, Any]:
        filtered = self._fields.filter_values({name: one for name, one in values.items() if one is not None})
        return {f"securevfl.{name}": value for name, value in (self._always | filtered).items()}

    def _begin(self, name: str, parent: _Open | None, **values: Any) -> _Open:
        from opentelemetry.trace import set_span_in_context

        within = None if parent is None else set_span_in_context(parent.span)
        return _Open(self._tracer.start_span(f"securevfl.{name}", within, attributes=self._attributes(**values)))

    def _end_epoch(self) -> None:
        self._end(self._epoch)
        self._epoch = None

    def _end(self, one: _Open | None) -> None:
        if one is None:
            return
        from opentelemetry.trace import set_span_in_context

        within = set_span_in_context(one.span)
        for (peer, way, kind), seen in one.exchanges.items():
            about = self._attributes(peer=peer, way=way, kind=kind.value.replace(" ", "-"), count=seen.count)
            span = self._tracer.start_span("securevfl.exchange", within, start_time=seen.first, attributes=about)
            span.end(seen.last)
        one.exchanges.clear()
        one.span.end()


@contextmanager
def open_traces(fields: LogFields, agreement: str, version: str) -> Iterator[TraceEvents]:
    """Export traces by OTLP over HTTP as long as the block lasts, as the standard ``OTEL_…`` variables say: endpoint,
    headers, sampler, limits. Without them they go to this machine, port 4318.

    Args:
        fields: what attributes may contain.
        agreement: the first digits of its SHA-256.
        version: of this package.

    Raises:
        InputError: the extra packages are not installed, or a variable cannot be used.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise InputError('--trace needs OpenTelemetry: pip install "securevfl[otel]"') from None
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "securevfl"}
    try:
        provider = TracerProvider(
            resource=Resource.create({**named, "service.version": version}), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise InputError(f"a variable OTEL_… cannot be used: {error}") from None
    events = TraceEvents(fields, agreement, provider)
    try:
        yield events
    finally:
        events.close("ended")
        provider.shutdown()
