# SPDX-License-Identifier: Apache-2.0
"""
Requests that are made up from the specifications themselves, valid ones and others, against a running gateway.

For every operation that exists: no answer is a 5xx but a 503, and each answer is as the document says where it says it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.openapi import from_dict, from_path
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from gateway.catalogs.registry import BUILTIN
from gateway.http.app import OWN
from gateway.http.openapi import ANSWERS, BODIES, ENDLESS, STATUSES, openapi
from gateway.http.operations import PROPOSED, endpoints
from testkit.environment import PROJECT, missing
from testkit.gateway.view_requests import VIEWS, view_created
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPECIFICATION = PROJECT.parent / "shared" / "spec" / "iceberg-rest-catalog-open-api.yaml"
EXAMPLES_MAX = 2
"""Made up for one operation: valid ones and others, each with names that exist and, if it has names, with others."""
TIMEOUT_S = 30
CHECKS = [response_schema_conformance, content_type_conformance]
THERE = {"namespace": "sales", "table": "orders", "view": "report"}

Faults = list[str]


def check_operation(
    operation: APIOperation[Any, Any, Any, Any], url: str, key: str, fixed: Mapping[str, str], mode: GenerationMode
) -> Faults:
    """Send what is made up for one operation; return what is wrong with the answers."""
    faults: Faults = []
    names = {parameter.name for parameter in operation.path_parameters}
    strategy = operation.as_strategy(
        generation_mode=mode, path_parameters={name: value for name, value in fixed.items() if name in names}
    )

    @settings(
        max_examples=EXAMPLES_MAX,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def run(case: Case[Any]) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        response = case.call(base_url=url, headers=headers, timeout=TIMEOUT_S, allow_redirects=False)
        where = f"{operation.label} {mode.value} {response.status_code}"
        if response.status_code >= 500 and response.status_code != 503:
            faults.append(f"{where}: {response.text[:300]}")
            return
        try:
            if operation.method.upper() != "HEAD":  # its answers have no content that could be of a type
                case.validate_response(response, checks=CHECKS)
        except (Failure, FailureGroup) as error:
            faults.append(f"{where}: {str(error)[:600]}")

    try:
        run()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, f"{operation.label}: nothing valid can be made up"
        # Nothing of it can be wrong: it takes no parameters and no body.
    return faults


async def faults_of(
    schema: BaseSchema, sales: Gateway, fixed: Mapping[str, str], exists: Callable[[str], bool]
) -> tuple[set[str], Faults]:
    """Check every operation that exists, with names as they are and others; return which, and what is wrong."""
    checked: set[str] = set()
    faults: Faults = []
    async with serve_gateway(sales.app) as url:
        for result in schema.get_all_operations():
            operation = result.ok()  # type: ignore[union-attr]  # an invalid operation raises here
            if not exists(operation.label):
                continue
            checked.add(operation.label)
            has_names = not THERE.keys().isdisjoint(each.name for each in operation.path_parameters)
            for names in (fixed, {**fixed, **THERE}) if has_names else (fixed,):
                for mode in GenerationMode:
                    faults += await asyncio.to_thread(
                        check_operation, operation, url, sales.acme.key.secret, names, mode
                    )
        async with sales.client(sales.acme.key.secret) as client:
            assert (await client.get("/health")).status_code == 200
    return checked, faults


def specification() -> dict[str, Any]:
    """The specification, with one slip put right: the errors of views are IcebergErrorResponses as all others are."""
    document: dict[str, Any] = from_path(SPECIFICATION).raw_schema
    slips = 0
    for path, item in document["paths"].items():
        for method in ("get", "head", "post", "delete") if "views" in path else ():
            for response in item.get(method, {}).get("responses", {}).values():
                for content in response.get("content", {}).values():
                    if content["schema"] == {"$ref": "#/components/schemas/ErrorModel"}:
                        content["schema"] = {"$ref": "#/components/schemas/IcebergErrorResponse"}
                        slips += 1
    assert slips > 0
    return document


async def test_the_catalog_answers_as_the_iceberg_specification_says(sales: Gateway) -> None:
    if not SPECIFICATION.is_file():
        missing(f"the specification {SPECIFICATION} is not here")
    load_all_checks()
    assert (await sales.http.post(VIEWS, json=view_created())).status_code == 200
    offered = {*endpoints(BUILTIN), "GET /v1/config"} - {each.endpoint for each in PROPOSED}
    checked, faults = await faults_of(
        from_dict(specification()), sales, {"prefix": "iceberg/lake"}, lambda label: label in offered
    )
    assert checked == offered
    assert faults == [], "\n\n".join(faults)


async def test_the_gateways_own_routes_answer_as_their_document_says(sales: Gateway) -> None:
    load_all_checks()
    document = (await sales.client(None).get("/openapi.json")).json()
    assert document == json.loads(json.dumps(openapi(OWN)))
    assert document == (await sales.client(None).get("/v1/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert set(BODIES) | set(STATUSES) | set(ANSWERS) <= described
    schema = from_dict(document)
    endless = {" ".join(route) for route in ENDLESS}
    checked, faults = await faults_of(schema, sales, {}, lambda label: label not in endless)
    assert len(checked) == len(described) - len(endless)
    assert faults == [], "\n\n".join(faults)
