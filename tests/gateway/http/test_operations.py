# SPDX-License-Identifier: Apache-2.0
"""
The table of operations: it is the specification's list, what is advertised is what exists, and each is judged by name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from schemathesis.openapi import from_path

from gateway.catalogs.catalog import Configuration
from gateway.catalogs.glue_options import GLUE
from gateway.catalogs.registry import BUILTIN, KINDS, REST
from gateway.catalogs.rest import (
    LIST_FUNCTIONS,
    LOAD_FUNCTION,
    REGISTER_TABLE,
    REGISTER_VIEW,
    TRANSACTIONS,
    UNREGISTER_TABLE,
)
from gateway.http.iceberg_routes import router
from gateway.http.operations import BY_ID, OPERATIONS, PROPOSED, RestOperation, endpoints, endpoints_of
from gateway.mutations import Operation
from gateway.policy.access import access_actions
from gateway.policy.variables import CommitView
from testkit.environment import PROJECT, missing

SPECIFICATION = PROJECT.parent / "shared" / "spec" / "iceberg-rest-catalog-open-api.yaml"
METHODS = ("get", "head", "post", "put", "patch", "delete")
NOT_OFFERED = {
    "loadCredentials",
    "signRequest",
    "planTableScan",
    "fetchPlanningResult",
    "cancelPlanning",
    "fetchScanTasks",
}


def specified() -> dict[str, tuple[str, str, bool]]:
    """Return method, path and whether there is an Idempotency-Key, by operationId."""
    if not SPECIFICATION.is_file():
        missing(f"the specification {SPECIFICATION} is not here")
    document: dict[str, Any] = from_path(SPECIFICATION).raw_schema
    found = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if (operation := item.get(method)) is not None:
                parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
                takes_key = {"$ref": "#/components/parameters/idempotency-key"} in parameters
                found[operation["operationId"]] = (method.upper(), path, takes_key)
    return found


def test_the_table_has_every_operation_of_the_specification_and_no_other() -> None:
    listed = {each.id: (each.method, each.path, each.takes_key) for each in OPERATIONS}
    assert listed == specified()
    assert len(OPERATIONS) + len(PROPOSED) == len(BY_ID)


def test_what_is_only_proposed_stands_beside_it_and_is_not_in_the_specification() -> None:
    assert [each.endpoint for each in PROPOSED] == ["POST /v1/{prefix}/events"]
    in_it = specified()
    assert not {each.id for each in PROPOSED} & in_it.keys()
    assert not {(each.method, each.path) for each in PROPOSED} & {where[:2] for where in in_it.values()}


def test_what_some_kind_offers_has_a_route_and_nothing_else_has() -> None:
    offered = {(each.method, each.route) for each in BY_ID.values() if each.kinds}
    routed = {(method, route.path) for route in router.routes for method in route.methods}  # type: ignore[attr-defined]
    assert routed == offered
    assert {each.id for each in OPERATIONS if not each.kinds} == NOT_OFFERED


def test_each_kind_is_advertised_what_it_offers() -> None:
    assert set(endpoints(BUILTIN)) == set(endpoints(REST))
    assert set(endpoints(REST)) - set(endpoints(GLUE)) == VIEWS | FUNCTIONS | REGISTERS | {
        BY_ID["unregisterTable"].endpoint,
        BY_ID["renameTable"].endpoint,
        BY_ID["commitTransaction"].endpoint,
    }
    for kind in KINDS:
        assert "GET /v1/config" not in endpoints(kind)


VIEWS = {BY_ID[each].endpoint for each in ("listViews", "createView", "loadView", "replaceView", "dropView")} | {
    BY_ID["renameView"].endpoint,
    BY_ID["viewExists"].endpoint,
}
TRANSACTION = BY_ID["commitTransaction"].endpoint
REGISTERS = {BY_ID["registerTable"].endpoint, BY_ID["registerView"].endpoint}
FUNCTIONS = {BY_ID["listFunctions"].endpoint, BY_ID["loadFunction"].endpoint}


@pytest.mark.parametrize(
    ("upstream", "missing_here"),
    [
        (None, VIEWS | FUNCTIONS | REGISTERS | {BY_ID["unregisterTable"].endpoint}),
        (set(endpoints(REST)) - {BY_ID["loadFunction"].endpoint}, {BY_ID["loadFunction"].endpoint}),
        (endpoints(REST), set()),
        (set(endpoints(REST)) - {BY_ID["renameTable"].endpoint}, {BY_ID["renameTable"].endpoint}),
        (set(endpoints(REST)) - {BY_ID["viewExists"].endpoint}, set()),
        (
            set(endpoints(REST)) - {BY_ID["loadView"].endpoint},
            {BY_ID["loadView"].endpoint, BY_ID["viewExists"].endpoint},
        ),
        ([], set(endpoints(REST)) - {BY_ID["getEvents"].endpoint}),
    ],
)
def test_a_foreign_catalog_is_advertised_with_what_its_upstream_has(
    upstream: Collection[str] | None, missing_here: set[str]
) -> None:
    found = set(endpoints_of(REST, Configuration(endpoints=upstream, reads_files=True)))
    assert set(endpoints(REST)) - found == missing_here
    assert found <= set(endpoints(REST))
    assert set(endpoints_of(REST, Configuration(endpoints=upstream))) == found - REGISTERS


def test_transactions_are_advertised_where_the_upstream_has_them_or_is_sent_the_commits_in_turn() -> None:
    without = set(endpoints(REST)) - {TRANSACTION}
    assert TRANSACTION not in endpoints_of(REST, Configuration(endpoints=without))
    assert TRANSACTION in endpoints_of(REST, Configuration(endpoints=without, commits_in_turn=True))
    neither = without - {BY_ID["updateTable"].endpoint}
    assert TRANSACTION not in endpoints_of(REST, Configuration(endpoints=neither, commits_in_turn=True))


def test_an_upstream_is_asked_for_what_the_specification_calls_so() -> None:
    assert {LIST_FUNCTIONS, LOAD_FUNCTION} == FUNCTIONS
    assert {REGISTER_TABLE, REGISTER_VIEW} == REGISTERS
    assert TRANSACTION == TRANSACTIONS
    assert BY_ID["unregisterTable"].endpoint == UNREGISTER_TABLE


@pytest.mark.parametrize("kind", [BUILTIN, GLUE])
def test_a_catalog_without_a_configuration_of_its_own_is_advertised_with_all_that_its_kind_has(kind: str) -> None:
    assert tuple(endpoints_of(kind, Configuration())) == endpoints(kind)


@pytest.mark.parametrize("operation", [each for each in BY_ID.values() if each.judged_as], ids=lambda each: each.id)
def test_every_operation_is_judged_under_names_that_access_rules_know(operation: RestOperation) -> None:
    for name in operation.judged_as:
        kind = name.partition(".")[0]
        view = CommitView(catalog="lake", namespace=("n",), name="t", kind=kind, operation=name)
        assert bool(access_actions(view)) == operation.changes, name
        if operation.changes and operation.kinds:
            assert Operation(name)
