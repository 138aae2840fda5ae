"""Traces: the spans of a request, the traces of front proxies, and collectors that fail."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from doi_proxy.features.tracing.spans import Export, LoggedExporter, TracedRequest, Traces
from doi_proxy.server.proxies import trusted_addresses
from tests.features.tracing.collector import attributes, collecting
from tests.server.served import served
from tests.web.proxy import Proxy
from tests.world.service import CLIENT

pytestmark = pytest.mark.anyio

#: The example of W3C Trace Context, section 3.2.3.
TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT: Final = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


def traces_to(url: str) -> Traces:
    return Traces(Export(url), "1.0", trusted_addresses(("127.0.0.1",)), time.time_ns)


async def send(message: Any) -> None: ...


async def test_a_request_and_its_query_are_spans_of_one_trace() -> None:
    with collecting() as collector:
        async with Proxy(otel_endpoint=collector.url) as proxy:
            proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
            assert (await proxy.get("/10.1000/182")).status == 302
        request, query = collector.span("GET resolve"), collector.span("upstream query")
    assert attributes(request) == {
        "http.request.method": "GET",
        "doi_proxy.route": "resolve",
        "http.response.status_code": 302,
        "doi_proxy.cache_status": attributes(request)["doi_proxy.cache_status"],
    }
    assert str(attributes(request)["doi_proxy.cache_status"]).startswith("doi-proxy; fwd=")
    assert attributes(query) == {"doi_proxy.upstream": 1, "doi_proxy.outcome": "found"}
    assert query.trace_id == request.trace_id
    assert query.parent_span_id == request.span_id
    assert query.end_time_unix_nano >= query.start_time_unix_nano


@pytest.mark.parametrize("privacy_level", [0, 3])
async def test_no_span_has_a_name_or_the_address_of_a_client(privacy_level: int) -> None:
    with collecting() as collector:
        async with Proxy(otel_endpoint=collector.url, privacy_level=privacy_level) as proxy:
            await proxy.get("/10.1000/secret-name?query-text", user_agent="agent-text")
            await proxy.get("/api/handles/10.1000/secret-name")
        assert collector.bodies
        for word in (b"secret-name", b"SECRET-NAME", b"192.0.2.7", b"query-text", b"agent-text"):
            assert not [body for body in collector.bodies if word in body]


async def test_health_and_metrics_have_no_spans() -> None:
    with collecting() as collector:
        async with Proxy(otel_endpoint=collector.url) as proxy:
            await proxy.get("/healthz")
            await proxy.get("/metrics")
        assert collector.spans() == []


async def test_an_invented_method_and_an_error_of_the_server_are_in_the_span() -> None:
    with collecting() as collector:
        traces = traces_to(collector.url)
        with traces.trace_request(TracedRequest("resolve", "INVENTED", "", None), send) as watched:
            await watched({"type": "http.response.start", "status": 504, "headers": []})
        await traces.aclose()
        span = collector.span("_OTHER resolve")
    assert attributes(span)["http.request.method"] == "_OTHER"
    assert span.status.code == span.status.STATUS_CODE_ERROR


async def test_the_message_of_an_exception_is_not_in_a_span() -> None:
    with collecting() as collector:
        traces = traces_to(collector.url)
        with (
            pytest.raises(ValueError, match="secret"),
            traces.trace_request(TracedRequest("resolve", "GET", "", None), send),
        ):
            raise ValueError("secret")
        await traces.aclose()
        assert collector.span("GET resolve").kind
        assert not [body for body in collector.bodies if b"secret" in body]


@pytest.mark.parametrize(("trusted", "is_continued"), [(CLIENT, True), ("192.0.2.1", False)])
async def test_the_server_passes_on_the_address_of_the_proxy_and_not_of_the_client(
    trusted: str, is_continued: bool
) -> None:
    head = f"GET / HTTP/1.1\r\nhost: a\r\ntraceparent: {TRACEPARENT}\r\nx-forwarded-for: 198.51.100.9\r\n"
    with collecting() as collector:
        async with served(otel_endpoint=collector.url, trusted_proxies=trusted) as server:
            assert b" 200 OK" in await server.exchange(head.encode() + b"connection: close\r\n\r\n")
        assert (collector.span("GET home").trace_id.hex() == TRACE_ID) is is_continued


@pytest.mark.parametrize(
    ("peer", "traceparent"),
    [("", TRACEPARENT), *(("127.0.0.1", text) for text in ("", "00-0-0-01", "x" * 8000, "ff" + TRACEPARENT[2:]))],
)
async def test_a_client_without_an_address_and_a_malformed_traceparent_begin_a_trace(
    peer: str, traceparent: str
) -> None:
    with collecting() as collector:
        traces = traces_to(collector.url)
        with traces.trace_request(TracedRequest("home", "GET", peer, traceparent), send):
            pass
        await traces.aclose()
        assert collector.span("GET home").parent_span_id == b""


async def test_a_sampler_of_the_environment_exports_nothing_but_what_a_trusted_proxy_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    with collecting() as collector:
        traces = traces_to(collector.url)
        for traceparent in (None, TRACEPARENT):
            with traces.trace_request(TracedRequest("home", "GET", "127.0.0.1", traceparent), send):
                pass
        await traces.aclose()
        assert collector.span("GET home").trace_id.hex() == TRACE_ID


async def test_proxies_that_a_reload_trusts_continue_their_traces() -> None:
    with collecting() as collector:
        traces = traces_to(collector.url)
        traces.trust(trusted_addresses(("192.0.2.7",)))
        with traces.trace_request(TracedRequest("home", "GET", "192.0.2.7", TRACEPARENT), send):
            pass
        await traces.aclose()
        assert collector.span("GET home").trace_id.hex() == TRACE_ID


async def record_more_than_the_queue_holds(export: Export) -> None:
    traces = Traces(export, "1.0", trusted_addresses(("127.0.0.1",)), time.time_ns)
    for _ in range(5):
        with traces.trace_request(TracedRequest("home", "GET", "127.0.0.1", None), send):
            pass
    await traces.aclose()


async def test_requests_are_answered_and_the_service_ends_without_a_collector() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1/traces"
        await record_more_than_the_queue_holds(Export(url, queue_spans=1, timeout=0.1))


async def test_requests_are_answered_and_the_service_ends_while_the_collector_does_not_answer() -> None:
    answers = threading.Event()
    with collecting(answers) as collector:
        await record_more_than_the_queue_holds(Export(collector.url, queue_spans=1, timeout=0.1))
        assert not answers.is_set()


@contextmanager
def logged() -> Iterator[list[str]]:
    """What reaches the root logger, as the log of the program does. (caplog has what stays below it, too.)"""
    lines: list[str] = []
    handler = logging.StreamHandler(SimpleNamespace(write=lines.append, flush=lambda: None))
    handler.terminator = ""
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


async def test_a_collector_that_fails_is_logged_once_and_so_is_its_return() -> None:
    with collecting() as collector, logged() as lines:
        exporter = LoggedExporter(OTLPSpanExporter(collector.url, timeout=10), collector.url)
        assert exporter.export(()) is SpanExportResult.SUCCESS
        collector.status = 400
        for _ in range(3):
            assert exporter.export(()) is SpanExportResult.FAILURE
        collector.status = 200
        assert exporter.export(()) is SpanExportResult.SUCCESS
        exporter.shutdown()
    host = collector.url.split("/")[2]
    # On a busy machine, a collector of an earlier test can fail only now.
    failed, works = (line for line in lines if host in line)
    assert failed.startswith(f"the collector of traces at {host} does not take spans, which are dropped: ")
    assert "400" in failed
    assert works == f"the collector of traces at {host} takes spans again"
