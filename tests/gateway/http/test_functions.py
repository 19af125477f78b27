# SPDX-License-Identifier: Apache-2.0
"""
Functions: a built-in catalog has none, and a foreign one is asked if it says that it has them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.catalogs import upstream as wire
from gateway.catalogs.rest import LIST_FUNCTIONS, LOAD_FUNCTION
from ledger.format.events import CallerRefused, from_data
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, SALES, another_key, error_of
from testkit.servers.chained import BEYOND, open_chain, register
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve
from testkit.servers.script import Script, error

pytestmark = pytest.mark.asyncio(loop_scope="module")

FUNCTIONS = f"{SALES}/functions"
ADD_ONE = f"{FUNCTIONS}/add_one"
FAR = "/v1/iceberg/far/namespaces"
FAR_FUNCTIONS = f"{FAR}/sales%1Feu/functions"
UPSTREAM = "/v1/main/namespaces/sales%1Feu"
CONFIG: Final[dict[str, Any]] = {
    "defaults": {},
    "overrides": {"prefix": "main"},
    "endpoints": [LIST_FUNCTIONS, LOAD_FUNCTION, "GET /v1/{prefix}/namespaces/{namespace}"],
}
METADATA: Final[dict[str, Any]] = {
    "function-uuid": "8f7a2c2e-4f0f-4d0c-9d2b-1f5e6c7d8e9f",
    "format-version": 1,
    "definitions": [
        {
            "definition-id": "int",
            "parameters": [{"name": "x", "type": "int"}],
            "return-type": "int",
            "versions": [
                {
                    "version-id": 1,
                    "representations": [{"type": "sql", "dialect": "trino", "sql": "x + 1"}],
                    "timestamp-ms": 1,
                }
            ],
            "current-version-id": 1,
            "function-type": "udf",
        }
    ],
    "definition-log": [
        {"timestamp-ms": 1, "definition-versions": [{"definition-id": "int", "version-id": 1}]},
    ],
    "location": "s3://b/f",
    "properties": {"owner": "ada"},
}
LOADED: Final[dict[str, Any]] = {"metadata-location": "s3://b/f/1.json", "metadata": METADATA}


def scripted() -> Script:
    """Return an upstream with the namespace `sales.eu`, which says that it has functions."""
    namespace = {"namespace": ["sales", "eu"], "properties": {}}
    return Script(answers={"/v1/config": (200, orjson.dumps(CONFIG)), UPSTREAM: (200, orjson.dumps(namespace))})


@pytest.fixture
def script() -> Script:
    """An upstream of this test's own."""
    return scripted()


@pytest.fixture(scope="module")
def module_script() -> Script:
    """An upstream that tests share which each say what it answers."""
    return scripted()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_far(module_gateway: Gateway, module_script: Script) -> AsyncIterator[Gateway]:
    """A gateway whose catalog `far` is that upstream."""
    async with serve(module_script.app()) as url:
        await register(module_gateway, "far", url)
        yield module_gateway


@pytest_asyncio.fixture(loop_scope="module")
async def far(shared_gateway: Gateway, script: Script) -> AsyncIterator[Gateway]:
    """A gateway whose catalog `far` is the upstream."""
    async with serve(script.app()) as url:
        await register(shared_gateway, "far", url)
        yield shared_gateway


async def permit(gateway: Gateway, rule_id: str, expression: str) -> None:
    await gateway.services.gateway.admin.create_access_rule(
        gateway.acme.log_id, OPERATOR, rule_id=rule_id, effect="permit", expression=expression
    )


# Built-in catalogs


async def test_a_namespace_of_a_built_in_catalog_has_no_functions(sales: Gateway) -> None:
    for query in ("", "?pageSize=1", "?pageToken=&pageSize=10", "?pageToken=add_one"):
        answer = await sales.http.get(f"{FUNCTIONS}{query}")
        assert (answer.status_code, answer.json()) == (200, {"identifiers": []}), query
    missing = await sales.http.get(ADD_ONE)
    assert (missing.status_code, error_of(missing)["type"]) == (404, "NoSuchFunctionException")
    assert error_of(missing)["message"] == "Function does not exist: sales.add_one"


async def test_a_table_is_no_function_of_its_name(sales: Gateway) -> None:
    answer = await sales.http.get(f"{FUNCTIONS}/orders")
    assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchFunctionException")


async def test_functions_of_a_namespace_that_is_missing_are_404(sales: Gateway) -> None:
    for levels, path in (("no", f"{NAMESPACES}/no"), ("sales.no", f"{SALES}%1Fno")):
        for answer in (await sales.http.get(f"{path}/functions"), await sales.http.get(f"{path}/functions/add_one")):
            assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchNamespaceException")
            assert error_of(answer)["message"] == f"Namespace does not exist: {levels}"


async def test_pages_of_functions_are_asked_for_as_pages_of_tables_are(sales: Gateway) -> None:
    for query, field in (
        ("pageSize=0", "pageSize"),
        ("pageSize=-1", "pageSize"),
        ("pageSize=ten", "pageSize"),
        ("pageSize=1e3", "pageSize"),
        ("pageSize=10000000000", "pageSize"),
        ("pageToken=%2500", "pageToken"),
        (f"pageToken={'x' * 16_385}", "pageToken"),
    ):
        of_functions, of_tables = [await sales.http.get(f"{SALES}/{kind}?{query}") for kind in ("functions", "tables")]
        assert (of_functions.status_code, of_tables.status_code) == (400, 400), query
        assert error_of(of_functions)["message"].partition(":")[0] == field
        assert error_of(of_functions)["message"] == error_of(of_tables)["message"]


async def test_a_function_has_a_name_of_one_level(sales: Gateway) -> None:
    for name in ("add%1Fone", "%1F", "%00", "%FF", "%2E%2E", "x" * 256):
        answer = await sales.http.get(f"{FUNCTIONS}/{name}")
        assert (answer.status_code, error_of(answer)["message"].partition(":")[0]) == (400, "function"), name
    for name, shown in (("a%2Fb", "a/b"), ("a.b", "a.b"), ("%E8%A1%A8", "表")):
        answer = await sales.http.get(f"{FUNCTIONS}/{name}")
        assert (answer.status_code, error_of(answer)["message"]) == (404, f"Function does not exist: sales.{shown}")
    assert (await sales.http.get(f"{NAMESPACES}/sales%1F/functions")).status_code == 400


async def test_functions_are_read_and_never_changed(sales: Gateway) -> None:
    for method in ("POST", "PUT", "DELETE"):
        for path in (FUNCTIONS, ADD_ONE):
            assert (await sales.http.request(method, path)).status_code == 405, (method, path)


# Access


async def test_who_may_not_read_functions_does_not_learn_whether_there_are_any(sales: Gateway) -> None:
    eve = sales.client(await another_key(sales))
    denied = set()
    for path in (FUNCTIONS, ADD_ONE, f"{NAMESPACES}/no/functions", f"{NAMESPACES}/no/functions/add_one"):
        answer = await eve.get(path)
        assert answer.status_code == 403, path
        denied.add(answer.text)
    assert len(denied) == 1
    refused = [
        from_data(CallerRefused, told.entry.data)
        for told in await read_stored(sales.services, sales.acme.log_id)
        if told.entry.type == "access.refused"
    ]
    assert sorted(each.operation for each in refused) == ["function.load"] * 2 + ["namespace.list"] * 2
    assert (await sales.client(None).get(ADD_ONE)).status_code == 401


async def test_a_function_is_judged_as_content_of_its_own_type(sales: Gateway) -> None:
    await permit(sales, "views", "'viewer' in roles && contentType == 'ICEBERG_VIEW'")
    await permit(sales, "tables", "'viewer' in roles && contentType == 'ICEBERG_TABLE'")
    await permit(
        sales,
        "functions",
        "'caller' in roles && op == 'READ_ENTITY_VALUE' && contentType == 'UDF' && path == 'sales.add_one'",
    )
    viewer = sales.client(await another_key(sales, "vera", "viewer"))
    assert (await viewer.get(ADD_ONE)).status_code == 403, "no rule names functions"
    caller = sales.client(await another_key(sales, "carl", "caller"))
    assert (await caller.get(ADD_ONE)).status_code == 404
    assert (await caller.get(f"{FUNCTIONS}/add_two")).status_code == 403
    assert (await caller.get(FUNCTIONS)).status_code == 403, "to list a namespace is another right"
    assert (await caller.get(f"{SALES}/tables/orders")).status_code == 403
    assert (await caller.get("/v1/config?warehouse=lake")).status_code == 200, "something is permitted there"


async def test_who_may_list_a_namespace_may_list_its_functions(sales: Gateway) -> None:
    await permit(sales, "listers", "'lister' in roles && op == 'READ_CONTENT_KEY' && contentType == 'NAMESPACE'")
    lister = sales.client(await another_key(sales, "lena", "lister"))
    assert (await lister.get(FUNCTIONS)).status_code == 200
    assert (await lister.get(ADD_ONE)).status_code == 403


# Foreign catalogs


async def test_functions_of_a_foreign_catalog_are_answered_as_it_answers(far: Gateway, script: Script) -> None:
    pages: dict[str, dict[str, Any]] = {
        "?pageToken=&pageSize=1": {"identifiers": [["sales", "eu", "a/b"]], "next-page-token": "t 1"},
        "?pageToken=t%201&pageSize=1": {"identifiers": [["sales", "eu", "add_one"]], "next-page-token": None},
    }
    for query, page in pages.items():
        script.answers[f"{UPSTREAM}/functions{query}"] = (200, orjson.dumps(page))
    script.answers[f"{UPSTREAM}/functions/a%2Fb"] = (200, orjson.dumps(LOADED))
    first = await far.http.get(f"{FAR_FUNCTIONS}?pageToken=&pageSize=1")
    assert first.json() == {"identifiers": [["sales", "eu", "a/b"]], "next-page-token": "t 1"}
    last = await far.http.get(f"{FAR_FUNCTIONS}?pageToken=t%201&pageSize=1")
    assert last.json() == {"identifiers": [["sales", "eu", "add_one"]]}
    loaded = await far.http.get(f"{FAR_FUNCTIONS}/a%2Fb")
    assert (loaded.status_code, loaded.content) == (200, orjson.dumps(LOADED)), "byte for byte"
    assert loaded.headers["content-type"] == "application/json"


async def test_a_functions_location_may_be_missing(far: Gateway, script: Script) -> None:
    script.answers[f"{UPSTREAM}/functions/f"] = (200, orjson.dumps({"metadata": METADATA}))
    assert (await far.http.get(f"{FAR_FUNCTIONS}/f")).json() == {"metadata": METADATA}


async def test_a_functions_answer_leads_no_engine_round_the_gateway(far: Gateway, script: Script) -> None:
    config = {"uri": "http://elsewhere", "token": "t", "s3.region": "r"}
    credentials = [{"prefix": "s3://b", "config": {"s3.signer.uri": "http://elsewhere", "s3.region": "r"}}]
    answer = {**LOADED, "config": config, "storage-credentials": credentials}
    script.answers[f"{UPSTREAM}/functions/f"] = (200, orjson.dumps(answer))
    cleaned = {**LOADED, "config": {"s3.region": "r"}}
    assert (await far.http.get(f"{FAR_FUNCTIONS}/f")).json() == {**cleaned, "storage-credentials": []}
    asks = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    given = [{"prefix": "s3://b", "config": {"s3.region": "r"}}]
    asked = await far.http.get(f"{FAR_FUNCTIONS}/f", headers=asks)
    assert asked.json() == {**cleaned, "storage-credentials": given}


async def test_a_missing_function_and_a_missing_namespace_are_told_apart(far: Gateway, script: Script) -> None:
    script.answers[f"{UPSTREAM}/functions/no"] = error("NoSuchFunctionException", 404)
    answer = await far.http.get(f"{FAR_FUNCTIONS}/no")
    assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchFunctionException")
    for path in (f"{FAR}/none/functions", f"{FAR}/none/functions/f"):
        answer = await far.http.get(path)
        assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchNamespaceException"), path


@pytest.mark.parametrize(
    "body",
    [
        {"identifiers": [["sales", "us", "add_one"]]},
        {"identifiers": [["sales", "eu", "ours"], ["finance", "theirs"]]},
        {"identifiers": [["sales", "eu"]]},
        {"identifiers": [["sales", "eu", "deep", "add_one"]]},
        {"identifiers": [["sales", "eu", 1]]},
        {"identifiers": [[]]},
        {"identifiers": ["add_one"]},
        {"identifiers": [{"namespace": ["sales", "eu"], "name": "add_one"}]},
        {"identifiers": None},
        {},
        [],
        "junk",
    ],
)
async def test_an_upstream_that_lists_what_was_not_asked_for_is_not_believed(
    module_far: Gateway, module_script: Script, body: object
) -> None:
    module_script.answers[f"{UPSTREAM}/functions"] = (200, orjson.dumps(body))
    answer = await module_far.http.get(FAR_FUNCTIONS)
    assert (answer.status_code, error_of(answer)["type"]) == (503, "ServiceUnavailableException")
    assert "add_one" not in answer.text
    assert "theirs" not in answer.text


def without(name: str) -> dict[str, Any]:
    return {"metadata": {member: value for member, value in METADATA.items() if member != name}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        orjson.dumps({"metadata": "s3://b/f"}),
        *(orjson.dumps(without(name)) for name in ("function-uuid", "format-version", "definitions", "definition-log")),
        orjson.dumps({"metadata": {**METADATA, "function-uuid": "u" * 65}}),
        orjson.dumps({"metadata": {**METADATA, "function-uuid": 7}}),
        orjson.dumps({"metadata": {**METADATA, "format-version": True}}),
        orjson.dumps({"metadata": {**METADATA, "definitions": {}}}),
        orjson.dumps({**LOADED, "metadata-location": 7}),
        orjson.dumps({**LOADED, "metadata-location": ""}),
        orjson.dumps({**LOADED, "metadata-location": "s3://b/" + "x" * 4_096}),
        orjson.dumps({"metadata-location": "s3://b/m.json", "metadata": {"table-uuid": "u"}}),
    ],
)
async def test_an_answer_that_is_no_function_is_not_passed_on(
    module_far: Gateway, module_script: Script, body: bytes
) -> None:
    module_script.answers[f"{UPSTREAM}/functions/f"] = (200, body)
    answer = await module_far.http.get(f"{FAR_FUNCTIONS}/f")
    assert (answer.status_code, error_of(answer)["type"]) == (503, "ServiceUnavailableException")


async def test_an_upstream_that_refuses_or_fails_is_answered_as_for_tables(far: Gateway, script: Script) -> None:
    for status, body, answered in (
        (*error("ForbiddenException", 403), 403),
        (*error("Oops", 500), 503),
        (404, b"no such page", 503),
        (302, b"", 503),
    ):
        for path in ("/functions", "/functions/f"):
            script.answers[f"{UPSTREAM}{path}"] = (status, body)
            answer = await far.http.get(f"{FAR}/sales%1Feu{path}")
            assert answer.status_code == answered, (status, path)


async def test_a_function_that_is_too_large_is_not_read(
    far: Gateway, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answers[f"{UPSTREAM}/functions/f"] = (200, orjson.dumps(LOADED))
    assert (await far.http.get(f"{FAR_FUNCTIONS}/f")).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(wire, "ANSWER_SIZE_BYTES_MAX", len(orjson.dumps(LOADED)) - 1)
        answer = await far.http.get(f"{FAR_FUNCTIONS}/f")
    assert answer.status_code == 503
    assert "bytes" in error_of(answer)["message"]


@pytest.mark.parametrize("endpoints", [None, [], ["GET /v1/{prefix}/namespaces/{namespace}/tables"]])
async def test_an_upstream_that_does_not_say_that_it_has_functions_is_not_asked(
    far: Gateway, script: Script, endpoints: list[str] | None
) -> None:
    script.answers["/v1/config"] = (200, orjson.dumps({**CONFIG, "endpoints": endpoints}))
    script.answers[f"{UPSTREAM}/functions"] = (200, orjson.dumps({"identifiers": []}))
    script.answers[f"{UPSTREAM}/functions/f"] = (200, orjson.dumps(LOADED))
    for path in (FAR_FUNCTIONS, f"{FAR_FUNCTIONS}/f"):
        answer = await far.http.get(path)
        assert (answer.status_code, error_of(answer)["type"]) == (406, "UnsupportedOperationException"), path
    assert not any("functions" in path for path in script.paths())
    advertised = (await far.http.get("/v1/config?warehouse=far")).json()["endpoints"]
    assert not any("functions" in endpoint for endpoint in advertised)


async def test_functions_are_asked_for_through_two_gateways(
    sales: Gateway, module_app: FastAPI, module_url: str
) -> None:
    async with open_chain(sales.services, module_app, module_url) as chained:
        beyond = f"/v1/iceberg/{BEYOND}/namespaces"
        (await chained.http.post(beyond, json={"namespace": ["sales"]})).raise_for_status()
        advertised = (await chained.http.get(f"/v1/config?warehouse={BEYOND}")).json()["endpoints"]
        assert {LIST_FUNCTIONS, LOAD_FUNCTION} <= set(advertised)
        assert (await chained.http.get(f"{beyond}/sales/functions")).json() == {"identifiers": []}
        for path, kind in (
            ("sales/functions/f", "NoSuchFunctionException"),
            ("no/functions/f", "NoSuchNamespaceException"),
            ("no/functions", "NoSuchNamespaceException"),
        ):
            answer = await chained.http.get(f"{beyond}/{path}")
            assert (answer.status_code, error_of(answer)["type"]) == (404, kind), path
