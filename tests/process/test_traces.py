"""Traces: what spans there are, that nothing in them is anybody's data, and that nothing runs when they are off."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.processes import PythonProcess

import securevfl as sv
from securevfl.party_context import Observer
from securevfl.process.log_fields import EVENTS, FIELDS, LogFields
from securevfl.process.observers import SeveralObservers
from securevfl.process.operations import open_outputs
from securevfl.process.traces import SPANS, TraceEvents
from securevfl.run.context_building import _count_for
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.transport import Kind

MARK = "MARKED-4711"
JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=3, batch_size=16, seed=3)


class _Traced:
    """Events of one party, and the spans that they make."""

    def __init__(self, party: str, peers: list[str]) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.events = TraceEvents(LogFields(party, peers), "ab" * 8, provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


def _marked(company_people: sv.Parties) -> sv.Parties:
    return sv.Parties.of(
        *(
            replace(table, ids=np.array([f"{MARK}{one}" for one in table.ids], dtype=object))
            for table in company_people.values()
        )
    )


def _company(folder: Path) -> Company:
    return create_company(folder, _marked(make_parties(passive=1, rows=120)), JOB)


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("securevfl."): value for name, value in (span.attributes or {}).items()}


def test_a_job_of_two_parties_over_tls_makes_spans_without_values(tmp_path: Path) -> None:
    company = _company(tmp_path)
    names = list(company.names)
    traced = {name: _Traced(name, names) for name in names}
    company.over_network(hearers={name: [one.events] for name, one in traced.items()})
    for name, one in traced.items():
        spans = one.spans
        by_name = Counter(span.name for span in spans)
        assert set(by_name) == {f"securevfl.{kind}" for kind in SPANS if kind != "batch"}
        assert by_name["securevfl.epoch"] == 3
        assert by_name["securevfl.attempt"] == 1
        phases = [_attributes(span)["phase"] for span in spans if span.name == "securevfl.phase"]
        assert phases[:3] == ["consent", "alignment", "setup"]
        at = {span.context.span_id: span for span in spans if span.context is not None}
        assert len({span.context.trace_id for span in spans if span.context is not None}) == 1
        for span in spans:
            found = _attributes(span)
            assert set(found) <= {"party", "outcome", *FIELDS, "peer"}
            assert found["party"] == name
            assert found["agreement"] == "ab" * 8
            assert not span.events  # an exception would be one
            assert span.start_time is not None
            assert span.end_time is not None
            assert span.start_time <= span.end_time
            if span.name == "securevfl.attempt":
                assert span.parent is None
                assert found["outcome"] in EVENTS
            else:
                assert span.parent is not None
                assert span.parent.span_id in at
        kinds = {(_attributes(span)["kind"], _attributes(span)["way"]) for span in spans if "exchange" in span.name}
        assert ("activation", "received" if name == "bank" else "sent") in kinds
        shown = "".join(span.to_json() for span in spans)
        assert MARK not in shown


def test_both_ends_count_the_same_messages(tmp_path: Path) -> None:
    company = _company(tmp_path)
    names = list(company.names)
    traced = {name: _Traced(name, names) for name in names}
    company.over_network(hearers={name: [one.events] for name, one in traced.items()})

    def total(name: str, way: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for span in traced[name].spans:
            about = _attributes(span)
            if about.get("way") == way and about["kind"] == "activation":
                found[about["kind"]] += about["count"]
        return found

    assert total("bank", "received") == total("shop1", "sent")
    assert total("bank", "received")["activation"] > 3


def test_marked_values_offered_to_every_event_are_left_out() -> None:
    one = _Traced("bank", ["shop"])
    events = one.events
    for event in (*EVENTS, MARK):
        events.report_event(event, MARK, **dict.fromkeys(("attempt", "peer", "row", "code", "error"), MARK))
        events.phase(MARK)
        events.phase("training")
        events.step(1, 4711, 4711)
        events.message_counted(MARK, "sent", Kind.ACTIVATION)
        events.epoch(1, 4711.5, {"auc": 4711.25})
    events.report_event("attempt", MARK, attempt=2)
    events.report_event("ended", f"InputError: identifier {MARK!r}", error=MARK)
    shown = "".join(span.to_json() for span in one.spans)
    assert one.spans
    assert MARK not in shown
    assert not [value for span in one.spans for value in _attributes(span).values() if "4711" in str(value)]


def test_a_served_batch_is_a_span_of_its_length() -> None:
    one = _Traced("bank", ["shop"])
    one.events.batch_served(0.25)
    (span,) = one.spans
    assert span.name == "securevfl.batch"
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time == pytest.approx(0.25e9, rel=1e-6)


def test_without_traces_no_message_is_counted() -> None:
    assert _count_for(Observer()) is None
    assert _count_for(SeveralObservers([Observer(), Observer()])) is None
    assert _count_for(SeveralObservers([Observer(), _Traced("bank", []).events])) is not None
    with open_outputs("bank", ["shop"], "ab" * 32, screen=None) as told:
        assert not any(isinstance(one, TraceEvents) for one in told.hearers)


@contextmanager
def _collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP collector on this machine, and what it received."""
    found: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            found.append(ExportTraceServiceRequest.FromString(content))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_two_processes_export_by_otlp(tmp_path: Path) -> None:
    """`securevfl party --trace` as processes; the collector gets protobuf, and no marked identifier is in it."""
    company = _company(tmp_path)

    async def run(where: str) -> list[tuple[int | None, str]]:
        async def party(name: str) -> tuple[int | None, str]:
            command = [*company.command(name)[1:], "--trace"]
            settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": where, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
            process = await asyncio.to_thread(PythonProcess, command, env=os.environ | settings)
            out, err = await asyncio.to_thread(process.communicate)
            return process.returncode, out + err

        return list(await asyncio.gather(*map(party, company.names)))

    with _collector() as (where, found):
        ended = asyncio.run(run(where))
    assert [code for code, _ in ended] == [0, 0], ended
    spans = [
        ({one.key: one.value.string_value for one in group.resource.attributes}["service.name"], span)
        for request in found
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert {service for service, _ in spans} == {"securevfl"}
    parties = {one.value.string_value for _, span in spans for one in span.attributes if one.key == "securevfl.party"}
    assert parties == set(company.names)
    assert Counter(span.name for _, span in spans)["securevfl.epoch"] == 6
    assert MARK not in "".join(map(str, found))
