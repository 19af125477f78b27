# SPDX-License-Identifier: Apache-2.0
"""
The application around the routes: unknown routes, failures, and the routes for operators.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any
from uuid import UUID

import httpx
import pytest

from gateway.commit.metrics import Measures
from gateway.errors import UnavailableError
from gateway.http.api_page import api_page
from gateway.http.app import create_app
from lakeproof.dead_letters import read_dead_letters
from ledger.errors import BrokenError, Fault, LedgerError, LogUnavailableError, QueueFullError, UnsafeServerError
from ledger.format.sealing import SubjectKeysError
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.sales import NAMESPACES, ORDERS, error_of, properties
from testkit.servers.gateways import Gateway, app_of, open_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_what_has_no_route_is_an_error_of_the_specifications_form(sales: Gateway) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/redoc", "/docs/", f"{NAMESPACES}/", "/v1/policies/"):
        answer = await sales.http.get(path)
        assert answer.status_code == 404, path
        words = f"expected a path that this gateway answers, found {path!r}: /docs lists them"
        assert answer.json() == {"error": {"message": words, "type": "NotFoundException", "code": 404}}
    answer = await sales.http.put(NAMESPACES)
    assert (answer.status_code, error_of(answer)["type"]) == (405, "UnsupportedOperationException")
    allowed = answer.headers["allow"]
    assert error_of(answer)["message"] == f"expected {allowed} at '{NAMESPACES}', found PUT"
    answer = await sales.http.get(f"/v1/{'x' * 5_000}")
    assert len(error_of(answer)["message"]) < 300


@pytest.mark.parametrize("kind", ["table", "view"])
async def test_nothing_of_the_empty_namespace_exists_so_that_an_engine_may_name_a_table_files(
    sales: Gateway, kind: str
) -> None:
    answer = await sales.http.get(f"{NAMESPACES}//{kind}s/sales")
    assert (answer.status_code, error_of(answer)["type"]) == (404, f"NoSuch{kind.capitalize()}Exception")
    for path in (f"{NAMESPACES}//{kind}s", f"{NAMESPACES}//{kind}s/", f"{NAMESPACES}//{kind}s/sales/more"):
        assert error_of(await sales.http.get(path))["type"] == "NotFoundException"


async def test_an_unexpected_failure_reveals_no_internals_to_the_client(
    sales: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        raise RuntimeError("a secret of the inside")

    answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["type"]) == (500, "InternalServerError")
    assert "secret" not in answer.text
    assert "a secret of the inside" in caplog.text


async def test_a_broken_log_is_an_error_and_nothing_is_changed(sales: Gateway) -> None:
    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        raise BrokenError(Fault.HEAD, where="ledger.heads", expected="what was", found=UUID(int=0))

    before = (await sales.http.get(ORDERS)).json()
    answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, "ledger" in answer.text) == (500, False)
    assert (await sales.http.get(ORDERS)).json() == before


@pytest.mark.parametrize("kind", [LogUnavailableError, QueueFullError, UnsafeServerError, SubjectKeysError])
async def test_a_log_that_takes_nothing_for_now_is_answered_503_with_retry_after(
    sales: Gateway, kind: type[LedgerError]
) -> None:
    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        raise kind("nothing was appended")

    before = (await sales.http.get(ORDERS)).json()
    answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["type"]) == (503, "ServiceUnavailableException")
    assert answer.headers["Retry-After"] == "1"
    assert (await sales.http.get(ORDERS)).json() == before


@pytest.mark.parametrize("kind", [UnsafeServerError, SubjectKeysError])
async def test_what_only_the_operator_can_repair_is_logged_and_not_sent_to_the_client(
    sales: Gateway, caplog: pytest.LogCaptureFixture, kind: type[LedgerError]
) -> None:
    app = app_of(sales.services.gateway)

    @app.get("/as-it-is")
    async def as_it_is() -> None:
        raise kind("/secret/place: mend it")

    @app.get("/as-an-answer")
    async def as_an_answer() -> None:
        error = kind("/secret/place: mend it")
        raise UnavailableError(f"nothing was changed: {error}") from error

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        for path in ("/as-it-is", "/as-an-answer"):
            caplog.clear()
            answer = await http.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert "secret" not in answer.text
            assert "/secret/place: mend it" in caplog.text


async def test_health_is_the_databases(sales: Gateway) -> None:
    answer = await sales.client(None).get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def scraped(gateway: Gateway, *, token: str | None, host: str = "127.0.0.1") -> httpx.AsyncClient:
    async def history(own: str) -> str:
        return f"{own}history_total 1\n"

    measures: Measures = gateway.app.state.measures
    app = create_app(
        gateway.services.gateway,
        measures=measures,
        metrics=history,
        metrics_token=token,
        dead_letters=read_dead_letters,
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app, client=(host, 1)), base_url="http://gateway")


async def test_metrics_are_for_loopback_or_for_a_token(sales: Gateway) -> None:
    async with open_gateway(sales.services, sales.acme) as counted:  # an application that nobody else has used
        await counted.http.post(ORDERS, json=properties(a="b"))
        await counted.http.post(ORDERS, content=b"{")
    text = (await scraped(counted, token=None).get("/metrics")).text
    assert 'lakeproof_gateway_mutations_total{operation="table.commit",status="200"} 1.0' in text
    assert 'lakeproof_gateway_mutations_total{operation="table.commit",status="400"} 1.0' in text
    assert 'lakeproof_commit_step_seconds_count{step="14"}' in text
    assert "# TYPE lakeproof_failed_programs_total counter" in text
    assert text.endswith("history_total 1\n")
    assert (await scraped(sales, token=None, host="::1").get("/metrics")).status_code == 200
    assert (await scraped(sales, token=None, host="10.1.2.3").get("/metrics")).status_code == 403
    far = scraped(sales, token="open", host="10.1.2.3")
    assert (await far.get("/metrics")).status_code == 401
    assert (await far.get("/metrics", headers={"Authorization": "Bearer shut"})).status_code == 401
    assert (await far.get("/metrics", headers={"Authorization": "Bearer open"})).status_code == 200
    assert (await scraped(sales, token="open").get("/metrics")).status_code == 401, "loopback too, once there is one"


async def test_metrics_are_refused_through_any_proxy(sales: Gateway) -> None:
    for headers in ({"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"}, {"X-Forwarded-For": ""}):
        answer = await scraped(sales, token=None).get("/metrics", headers=headers)
        assert (answer.status_code, error_of(answer)["type"]) == (403, "ForbiddenException")
    assert (await scraped(sales, token=None, host="::ffff:127.0.0.1").get("/metrics")).status_code == 200
    assert (await scraped(sales, token=None, host="::ffff:10.1.2.3").get("/metrics")).status_code == 403


JUNK = (
    b"",
    b"Bearer",
    b"Bearer ",
    b"Bearer \xff\xfe",
    b"bearer open",
    b"Bearer open ",
    b"\xf0\x9f\x94\x91",
    b"Bearer " + b"x" * 30_000,
)


async def test_malformed_headers_of_a_metrics_request_are_refused_without_a_failure(sales: Gateway) -> None:
    for token, status in (("open", 401), ("ö\u200b", 401), (None, 200)):
        http = scraped(sales, token=token)
        for junk in JUNK:
            answer = await http.get("/metrics", headers={b"Authorization": junk})
            assert answer.status_code == status, (token, junk)
            assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    for host in (
        "",
        "localhost",
        "testclient",
        "127.0.0.1, 10.1.2.3",
        "fe80::1%eth0",
        "/run/socket",
        "\udcff",
        "127.1",
    ):
        assert (await scraped(sales, token=None, host=host).get("/metrics")).status_code == 403, host


async def test_the_page_for_people_names_every_route_and_loads_nothing(sales: Gateway) -> None:
    document = (await sales.client(None).get("/openapi.json")).json()
    answer = await sales.client(None).get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"<code>{method.upper()} {path}</code>" in answer.text
    for name in document["components"]["schemas"]:
        assert f'<h2 id="{name}">' in answer.text
    assert re.search(r"<(?:script|link|img|iframe)|src=|url\(|https?://", answer.text) is None


async def test_the_page_escapes_whatever_the_document_says() -> None:
    operation = {
        "summary": "<b>&",
        "parameters": [{"name": "<q>", "in": "query", "description": "<em>"}, {"name": "id", "in": "path"}],
        "responses": {"200": {"description": "<i>"}},
        "security": [],
    }
    schemas = {"X": {"properties": {"<u>": {"type": "<s>"}}, "description": "<p>x"}}
    info, paths = {"title": "<h1>x"}, {"/<a>": {"get": operation}}
    page = api_page({"info": info, "paths": paths, "components": {"schemas": schemas}})
    for text in ("<b>&", "<q>", "<em>", "<i>", "<u>", "<s>", "<p>x", "<h1>x", "/<a>"):
        assert text not in page
        assert escape(text) in page
