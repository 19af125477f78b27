# SPDX-License-Identifier: Apache-2.0
"""
Requests as spans: what a collector of OpenTelemetry receives, in its own form, from a gateway that serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.commit.metrics import MutationStage
from gateway.http.request_context import NOT_SAMPLED, REQUEST_ID, SAMPLED, TRACEPARENT, RequestContext
from lakeproof import extras
from lakeproof.open_telemetry import OpenTelemetry
from lakeproof.provision import Provisioned
from lakeproof.serving.in_process import serving
from lakeproof.tenants import found_tenant
from lakeproof.tracing import TracesError, recording
from testkit.environment import PATIENCE_S
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, properties
from testkit.servers.gateways import start_services
from testkit.servers.java import free_ports
from testkit.servers.loopback import serve

TRACE, CLIENTS_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TABLE_ROUTE: Final = "/v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}"
SERVER_KIND, FAILED = 2, 2  # of the protocol: SPAN_KIND_SERVER, STATUS_CODE_ERROR


@dataclass(slots=True)
class Collector:
    """A collector: keeps the requests that arrive."""

    received: list[ExportTraceServiceRequest] = field(default_factory=list)

    def app(self) -> FastAPI:
        """Return what is served."""
        app = FastAPI()

        @app.post("/v1/traces")
        async def take(request: Request) -> Response:
            self.received.append(ExportTraceServiceRequest.FromString(await request.body()))
            return Response(media_type="application/x-protobuf")

        return app

    def spans(self) -> list[Any]:
        """Return all spans, in the order in which they ended."""
        return [
            span
            for request in self.received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        """Return what the services are called that have sent any."""
        resources = [resource.resource for request in self.received for resource in request.resource_spans]
        return {attributes_of(resource)["service.name"] for resource in resources}


def attributes_of(holder: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}


@asynccontextmanager
async def traced_gateway(
    database: str, installation: Provisioned, folder: Path, **settings: str
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a gateway that records its requests, with a tenant and the namespace `sales`."""
    chosen = {"port": "0", "streams": "0", "detect": "0", "traces": "1", **settings}
    async with (
        asyncio.timeout(60),
        start_services(database, installation, folder, **chosen) as services,
        serving(services) as served,
    ):
        founded = await found_tenant(services, name="acme", identity="ada@acme.example", alias="lake")
        headers = {"Authorization": f"Bearer {founded.key.secret}"}
        async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=PATIENCE_S) as client:
            assert (await client.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
            yield client


async def test_each_request_is_a_span_with_the_ids_of_its_log_lines(
    database: str, installation: Provisioned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    async with serve(collector.app()) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        async with traced_gateway(database, installation, tmp_path) as client:
            parent = {"traceparent": f"00-{TRACE}-{CLIENTS_SPAN}-{SAMPLED}"}
            answers = {
                "created": await client.post(TABLES, json=CREATE),
                "loaded": await client.get(ORDERS),
                "committed": await client.post(ORDERS, json=properties(a="b"), headers=parent),
                "missing": await client.get(f"{TABLES}/nothing"),
                "elsewhere": await client.get("/nothing/here"),
            }
            left_out = await client.get(ORDERS, headers={"traceparent": f"00-{TRACE}-{CLIENTS_SPAN}-{NOT_SAMPLED}"})
    by_id = {attributes_of(span)["lakeproof.request_id"]: span for span in collector.spans()}
    assert left_out.headers["x-request-id"] not in by_id
    found = {what: by_id[answer.headers["x-request-id"]] for what, answer in answers.items()}
    for what, answer in answers.items():
        request_id, span = answer.headers["x-request-id"], found[what]
        told = attributes_of(span)
        assert (span.span_id.hex(), span.kind) == (request_id[:16], SERVER_KIND)
        assert told["http.response.status_code"] == answer.status_code
        assert told["http.request.method"] == answer.request.method
        assert span.name == f"{answer.request.method} {told['http.route']}"
        assert span.end_time_unix_nano > span.start_time_unix_nano
        assert span.status.code != FAILED
        if what == "committed":
            assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, CLIENTS_SPAN)
        else:
            assert (span.trace_id.hex(), span.parent_span_id) == (request_id, b"")
    routes = {what: attributes_of(span)["http.route"] for what, span in found.items()}
    assert routes["loaded"] == routes["committed"] == routes["missing"] == TABLE_ROUTE
    assert routes["elsewhere"] == "unknown", "what a client makes up is no route"
    stages = [event.name for event in found["committed"].events]
    assert stages[0] == MutationStage.TENANT
    assert stages[-1] == MutationStage.ANSWER
    assert not found["loaded"].events
    assert collector.services() == {"lakeproof-gateway"}
    secret = client.headers["authorization"].removeprefix("Bearer ").encode()
    assert not any(secret in request.SerializeToString() for request in collector.received)


async def test_a_service_is_called_what_its_environment_says_and_sampled_as_it_says(
    database: str, installation: Provisioned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    async with serve(collector.app()) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "front-door")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
        async with traced_gateway(database, installation, tmp_path) as client:
            parent = {"traceparent": f"00-{TRACE}-{CLIENTS_SPAN}-{SAMPLED}"}
            asked_for = await client.get(f"{NAMESPACES}/sales", headers=parent)
            await client.get(f"{NAMESPACES}/sales")
    assert [span.span_id.hex() for span in collector.spans()] == [asked_for.headers["x-request-id"][:16]]
    assert collector.services() == {"front-door"}


async def test_a_collector_that_is_away_costs_spans_and_nothing_else(
    database: str,
    installation: Provisioned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with caplog.at_level(logging.INFO):
        async with traced_gateway(database, installation, tmp_path) as client:
            for _ in range(3):
                assert (await client.get(f"{NAMESPACES}/sales")).status_code == 200
                await asyncio.sleep(0.1)
    said = [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert said, "somebody learns of it"
    assert not [record for record in said if record.exc_info], "without a stack trace"


async def test_without_the_library_the_gateway_says_what_to_install(
    database: str, installation: Provisioned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.MODULES, "traces", ("not_installed_here",))
    async with start_services(database, installation, tmp_path, traces="1") as services:
        with pytest.raises(TracesError, match=r"pip install 'lakeproof\[traces\]'"):
            async with recording(FastAPI(), services.installation.settings):  # type: ignore[arg-type]
                raise AssertionError("it does not begin")


async def test_a_request_that_is_passed_on_has_a_span_of_its_own_below_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector, scope = Collector(), {"type": "http", "method": "POST", "server": ("127.0.0.1", 80), "headers": []}
    async with serve(collector.app()) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        tracer = OpenTelemetry()
        with RequestContext(scope) as first:
            first.span = passing = tracer.begin(first, method="POST")
            assert passing is not None
            told = [(REQUEST_ID, first.request_id.encode()), (TRACEPARENT, first.traceparent().encode())]
            with RequestContext({**scope, "server": None, "headers": told}) as second:
                making = tracer.begin(second, method="POST")
                assert making is not None
                making.end(route=TABLE_ROUTE, status=200)
            passing.end(route=TABLE_ROUTE, status=200)
        await asyncio.to_thread(tracer.close)
    below, above = collector.spans()
    assert first.request_id == second.request_id == attributes_of(below)["lakeproof.request_id"]
    assert below.parent_span_id == above.span_id == bytes.fromhex(first.span_id)
    assert below.span_id != above.span_id
    assert below.trace_id == above.trace_id == bytes.fromhex(first.request_id)
