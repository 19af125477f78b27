# SPDX-License-Identifier: Apache-2.0
"""
The Iceberg REST catalog's routes, in the prefix form `/v1/iceberg/{alias}/…`, and `/v1/config`.

`ENDPOINTS` is made from the routes themselves, so that `/v1/config` advertises exactly what exists.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from gateway.catalogs.catalog import Page, Snapshots
from gateway.catalogs.onward import DELEGATION_HEADER, HOPS_HEADER, Onward, parse_delegation, parse_hops
from gateway.commit.approved import Changed
from gateway.commit.commit_flow import commit
from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Measures
from gateway.commit.requests import Request as Mutating
from gateway.commit.requests import parse_content_length
from gateway.errors import BadRequestError, UpstreamAnswerError
from gateway.http import reads
from gateway.http.request import chunks, credential
from gateway.identifiers import Target, parse_alias, parse_name_segment, parse_namespace_segment
from gateway.mutations import Operation
from gateway.policy.variables import RequestView


class PassesUpstreamAnswers(APIRoute):
    """A route that passes on an upstream's own answer if that certainly refuses."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's handler; it answers with the upstream's answer instead of the error that carries it."""
        handle = super().get_route_handler()

        async def handle_and_pass(request: Request) -> Response:
            try:
                return await handle(request)
            except UpstreamAnswerError as error:
                headers = {} if error.retry_after is None else {"Retry-After": error.retry_after}
                body = b"" if request.method == "HEAD" else error.body
                return Response(body, status_code=error.status, headers=headers, media_type=error.content_type)

        return handle_and_pass


router = APIRouter(route_class=PassesUpstreamAnswers)

PREFIX: Final = "/v1/iceberg/{alias}"
NAMESPACE: Final = PREFIX + "/namespaces/{namespace}"
TABLE: Final = NAMESPACE + "/tables/{table}"
CLIENT_LENGTH_MAX: Final = 200


def endpoints() -> list[str]:
    """
    Return the catalog's routes as the REST specification lists them (`GET /v1/{prefix}/namespaces`, …).
    """
    found = []
    for route in router.routes:
        path: str = getattr(route, "path", "")
        if path.startswith(PREFIX):
            found += [f"{method} /v1/{{prefix}}{path[len(PREFIX) :]}" for method in getattr(route, "methods", ())]
    return sorted(found)


@router.get("/v1/config")
async def config(request: Request) -> Response:
    """Answer with the catalog's configuration: the prefix, and which endpoints exist."""
    gateway: Gateway = request.app.state.gateway
    arrived = await gateway.authenticator.arrive(credential(request))
    warehouse = request.query_params.get("warehouse")
    if not warehouse:
        raise BadRequestError("expected the alias of a catalog, found none", field="warehouse")
    alias = parse_alias(warehouse, field="warehouse")
    found = await reads.configuration(gateway, arrived, alias, _onward(request))
    overrides = {**found.overrides, "prefix": f"iceberg/{alias}"}
    return _json({"defaults": dict(found.defaults), "overrides": overrides, "endpoints": endpoints()})


@router.get(PREFIX + "/namespaces")
async def list_namespaces(request: Request, alias: str) -> Response:
    """List the namespaces directly below `parent`."""
    reader = await _reader(request, "list", alias)
    page = await reader.list_namespaces(**_page(request))
    return _json(_paged({"namespaces": page.names}, page))


@router.post(PREFIX + "/namespaces")
async def create_namespace(request: Request, alias: str) -> Response:
    """Create a namespace."""
    answer = await _commit(request, Operation.NAMESPACE_CREATE, alias)
    if answer.shown is not None:
        return _raw(answer.shown)
    return _json({"namespace": answer.mutation.target.namespace, "properties": answer.change.properties})


@router.get(NAMESPACE)
async def load_namespace(request: Request, alias: str, namespace: str) -> Response:
    """Load a namespace's properties."""
    reader = await _reader(request, "load", alias, namespace)
    return _json({"namespace": reader.target.namespace, "properties": await reader.load_namespace()})


@router.head(NAMESPACE)
async def namespace_exists(request: Request, alias: str, namespace: str) -> Response:
    """Answer 204 if the namespace exists."""
    await (await _reader(request, "exists", alias, namespace)).load_namespace()
    return Response(status_code=204)


@router.delete(NAMESPACE)
async def drop_namespace(request: Request, alias: str, namespace: str) -> Response:
    """Drop an empty namespace."""
    await _commit(request, Operation.NAMESPACE_DROP, alias, namespace)
    return Response(status_code=204)


@router.post(NAMESPACE + "/properties")
async def update_namespace(request: Request, alias: str, namespace: str) -> Response:
    """Set and remove properties of a namespace."""
    answer = await _commit(request, Operation.NAMESPACE_UPDATE, alias, namespace)
    if answer.shown is not None:
        return _raw(answer.shown)
    removals = answer.mutation.removals
    missing = [name for name in removals if name not in answer.before_properties]
    removed = [name for name in removals if name in answer.before_properties]
    return _json({"updated": sorted(answer.mutation.properties or {}), "removed": removed, "missing": missing})


@router.get(NAMESPACE + "/tables")
async def list_tables(request: Request, alias: str, namespace: str) -> Response:
    """List the tables of a namespace."""
    reader = await _reader(request, "list", alias, namespace)
    page = await reader.list_tables(**_page(request))
    identifiers = [{"namespace": reader.target.namespace, "name": name} for name in page.names]
    return _json(_paged({"identifiers": identifiers}, page))


@router.post(NAMESPACE + "/tables")
async def create_table(request: Request, alias: str, namespace: str) -> Response:
    """Create a table, or answer with a staged one."""
    return _raw((await _commit(request, Operation.TABLE_CREATE, alias, namespace)).shown or b"")


@router.get(TABLE)
async def load_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Load a table's metadata."""
    reader = await _reader(request, "load", alias, namespace, table)
    snapshots = request.query_params.get("snapshots", Snapshots.ALL)
    if snapshots not in set(Snapshots):
        raise BadRequestError(f"expected 'all' or 'refs', found {snapshots!r:.40}", field="snapshots")
    return _raw((await reader.show_table(Snapshots(snapshots))).body or b"")


@router.head(TABLE)
async def table_exists(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Answer 204 if the table exists."""
    await (await _reader(request, "exists", alias, namespace, table)).check_table()
    return Response(status_code=204)


@router.post(TABLE)
async def commit_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Commit updates to a table."""
    return _raw((await _commit(request, Operation.TABLE_COMMIT, alias, namespace, table)).shown or b"")


@router.delete(TABLE)
async def drop_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Drop a table; its files stay."""
    await _commit(request, Operation.TABLE_DROP, alias, namespace, table)
    return Response(status_code=204)


async def _reader(
    request: Request, verb: str, alias: str, namespace: str | None = None, table: str | None = None
) -> reads.Reader:
    """Return the reader of the target: without a namespace it is the `parent` in the query."""
    gateway: Gateway = request.app.state.gateway
    presented = credential(request)
    try:
        target = _target(request, alias, namespace, table)
    except BadRequestError:
        await gateway.authenticator.authenticate(presented)  # first: a stranger learns only that it is one
        raise
    arrived = await gateway.authenticator.arrive(presented, None if target.name is None else target)
    view = RequestView(method=request.method, path=request.scope["path"], client_version=_client(request))
    return await reads.permit(gateway, arrived, target, verb=verb, request=view, onward=_onward(request))


def _target(request: Request, alias: str, namespace: str | None, table: str | None) -> Target:
    if namespace is None:
        levels = reads.parse_parent(request.query_params.get("parent"))
    else:
        levels = parse_namespace_segment(namespace)
    name = None if table is None else parse_name_segment(table)
    return Target(alias=parse_alias(alias), namespace=levels, name=name)


async def _commit(
    request: Request, operation: Operation, alias: str, namespace: str | None = None, table: str | None = None
) -> Changed:
    measures: Measures = request.app.state.measures
    mutating = Mutating(
        operation=operation,
        method=request.method,
        path=request.scope["path"],
        authorization=credential(request),
        client=_client(request),
        alias_segment=alias,
        namespace_segment=namespace,
        name_segment=table,
        purge=request.query_params.get("purgeRequested", "false").lower() == "true",
        content_length=parse_content_length(request.headers.get("content-length")),
        chunks=chunks(request),
        onward=_onward(request),
    )
    with measures.commit(operation) as done:
        return await commit(mutating, request.app.state.gateway, done)


def _onward(request: Request) -> Onward:
    """What the request carries to a foreign catalog."""
    measures: Measures = request.app.state.measures
    return Onward(
        hops=parse_hops(request.headers.get(HOPS_HEADER)),
        delegation=parse_delegation(request.headers.get(DELEGATION_HEADER)),
        observe=measures.upstream,
    )


def _client(request: Request) -> str:
    """The engine's name and version: Iceberg's clients send X-Client-Version; User-Agent names their HTTP library."""
    named = request.headers.get("x-client-version") or request.headers.get("user-agent") or ""
    return named[:CLIENT_LENGTH_MAX]


def _page(request: Request) -> dict[str, Any]:
    return {
        "page_token": request.query_params.get("pageToken"),
        "page_size": reads.parse_page_size(request.query_params.get("pageSize")),
    }


def _paged(body: dict[str, Any], page: Page) -> dict[str, Any]:
    return body if page.next_token is None else body | {"next-page-token": page.next_token}


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def _raw(body: bytes) -> Response:
    return Response(body, media_type="application/json")
