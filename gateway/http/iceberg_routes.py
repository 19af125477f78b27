# SPDX-License-Identifier: Apache-2.0
"""
The Iceberg REST catalog's routes, in the prefix form `/v1/iceberg/{alias}/…`, and `/v1/config`: those operations that
some kind of catalog offers, proposed ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from gateway.catalogs.catalog import Page
from gateway.commit.metrics_reports import REPORT_SIZE_BYTES_MAX
from gateway.errors import UpstreamAnswerError
from gateway.http import catalog_requests, reads
from gateway.http.asked import Answer, Asked
from gateway.http.catalog_requests import change, reader, table_answer
from gateway.http.error_answers import upstream_answer
from gateway.http.oauth import answer_token
from gateway.http.operations import BY_ID
from gateway.http.request import body_of
from gateway.mutations import Operation


class PassesUpstreamAnswers(APIRoute):
    """A route that passes on an upstream's own answer if that certainly refuses."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's handler; it answers with the upstream's answer instead of the error that carries it."""
        handle = super().get_route_handler()

        async def handle_and_pass(request: Request) -> Response:
            try:
                return await handle(request)
            except UpstreamAnswerError as error:
                return upstream_answer(request, error)

        return handle_and_pass


router = APIRouter(route_class=PassesUpstreamAnswers)

Handler = Callable[..., Coroutine[Any, Any, Response]]


def serves(operation_id: str) -> Callable[[Handler], Handler]:
    """
    Make a function the route of an operation (`operations.py`).
    """
    operation = BY_ID[operation_id]
    return router.api_route(operation.route, methods=[operation.method])


@serves("getConfig")
async def config(request: Request) -> Response:
    """Answer with the catalog's configuration: the prefix, and which endpoints exist."""
    return _response(await catalog_requests.config(_asked(request)))


@serves("getToken")
async def get_token(request: Request) -> Response:
    """Answer with an access token for an API key."""
    return await answer_token(request)


@serves("listNamespaces")
async def list_namespaces(request: Request, alias: str) -> Response:
    """List the namespaces directly below `parent`."""
    found = await reader(_asked(request), "list", alias)
    page = await found.list_namespaces(**_page(request))
    return _json(_paged({"namespaces": page.names}, page))


@serves("createNamespace")
async def create_namespace(request: Request, alias: str) -> Response:
    """Create a namespace."""
    answer = await change(_asked(request), Operation.NAMESPACE_CREATE, alias)
    if answer.shown is not None:
        return _raw(answer.shown.body or b"")
    return _json({"namespace": answer.mutation.target.namespace, "properties": answer.change.properties})


@serves("loadNamespaceMetadata")
async def load_namespace(request: Request, alias: str, namespace: str) -> Response:
    """Load a namespace's properties."""
    found = await reader(_asked(request), "load", alias, namespace)
    return _json({"namespace": found.target.namespace, "properties": await found.load_namespace()})


@serves("namespaceExists")
async def namespace_exists(request: Request, alias: str, namespace: str) -> Response:
    """Answer 204 if the namespace exists."""
    await (await reader(_asked(request), "exists", alias, namespace)).load_namespace()
    return Response(status_code=204)


@serves("dropNamespace")
async def drop_namespace(request: Request, alias: str, namespace: str) -> Response:
    """Drop an empty namespace."""
    await change(_asked(request), Operation.NAMESPACE_DROP, alias, namespace)
    return Response(status_code=204)


@serves("updateProperties")
async def update_namespace(request: Request, alias: str, namespace: str) -> Response:
    """Set and remove properties of a namespace."""
    answer = await change(_asked(request), Operation.NAMESPACE_UPDATE, alias, namespace)
    if answer.shown is not None:
        return _raw(answer.shown.body or b"")
    removals = answer.mutation.removals
    missing = [name for name in removals if name not in answer.before_properties]
    removed = [name for name in removals if name in answer.before_properties]
    return _json({"updated": sorted(answer.mutation.properties or {}), "removed": removed, "missing": missing})


@serves("listTables")
async def list_tables(request: Request, alias: str, namespace: str) -> Response:
    """List the tables of a namespace."""
    return await _listed(request, alias, namespace, views=False)


async def _listed(request: Request, alias: str, namespace: str, *, views: bool) -> Response:
    found = await reader(_asked(request), "list", alias, namespace)
    page = await found.list_tables(views=views, **_page(request))
    identifiers = [{"namespace": found.target.namespace, "name": name} for name in page.names]
    return _json(_paged({"identifiers": identifiers}, page))


@serves("createTable")
async def create_table(request: Request, alias: str, namespace: str) -> Response:
    """Create a table, or answer with a staged one."""
    return _response(table_answer(await change(_asked(request), Operation.TABLE_CREATE, alias, namespace)))


@serves("registerTable")
async def register_table(request: Request, alias: str, namespace: str) -> Response:
    """Begin a table with a metadata file that is there."""
    return _response(table_answer(await change(_asked(request), Operation.TABLE_REGISTER, alias, namespace)))


@serves("loadTable")
async def load_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Load a table's metadata."""
    return _response(await catalog_requests.load_table(_asked(request), alias, namespace, table))


@serves("tableExists")
async def table_exists(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Answer 204 if the table exists."""
    return _response(await catalog_requests.table_exists(_asked(request), alias, namespace, table))


@serves("updateTable")
async def commit_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Commit updates to a table."""
    return _response(await catalog_requests.commit_table(_asked(request), alias, namespace, table))


@serves("dropTable")
async def drop_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Drop a table; its files stay, unless a purge is asked for."""
    await change(_asked(request), Operation.TABLE_DROP, alias, namespace, table)
    return Response(status_code=204)


@serves("unregisterTable")
async def unregister_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Take a table out of the catalog; its files stay, and the answer says where its last metadata is."""
    changed = await change(_asked(request), Operation.TABLE_UNREGISTER, alias, namespace, table)
    if changed.shown is not None:  # what a foreign catalog says is the last: others may have committed to it meanwhile
        return _response(table_answer(changed))
    last = changed.loaded
    return _json({"metadata-location": last.metadata_location, "metadata": last.metadata})


@serves("reportMetrics")
async def report_metrics(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Keep what an engine reports of a scan or commit; of one caller a bounded number, and the others are counted."""
    asked = _asked(request)
    found = await reader(asked, "load", alias, namespace, table)
    await found.check_exists()
    body = await body_of(request, size_bytes_max=REPORT_SIZE_BYTES_MAX)
    is_kept = await asked.gateway.metrics_reports.keep(found.caller, found.target, body)
    asked.measures.metrics_report(is_kept=is_kept)
    return Response(status_code=204)


@serves("renameTable")
async def rename_table(request: Request, alias: str) -> Response:
    """Give a table another name, perhaps in another namespace; its files stay where they are."""
    await change(_asked(request), Operation.TABLE_RENAME_FROM, alias)
    return Response(status_code=204)


@serves("commitTransaction")
async def commit_several(request: Request, alias: str) -> Response:
    """Commit updates to several tables at once."""
    await catalog_requests.commit_several(_asked(request), alias)
    return Response(status_code=204)


@serves("listViews")
async def list_views(request: Request, alias: str, namespace: str) -> Response:
    """List the views of a namespace."""
    return await _listed(request, alias, namespace, views=True)


@serves("createView")
async def create_view(request: Request, alias: str, namespace: str) -> Response:
    """Create a view."""
    return _response(table_answer(await change(_asked(request), Operation.VIEW_CREATE, alias, namespace)))


@serves("registerView")
async def register_view(request: Request, alias: str, namespace: str) -> Response:
    """Begin a view with a metadata file that is there."""
    return _response(table_answer(await change(_asked(request), Operation.VIEW_REGISTER, alias, namespace)))


@serves("loadView")
async def load_view(request: Request, alias: str, namespace: str, view: str) -> Response:
    """Load a view's metadata."""
    return _response(await catalog_requests.load_view(_asked(request), alias, namespace, view))


@serves("viewExists")
async def view_exists(request: Request, alias: str, namespace: str, view: str) -> Response:
    """Answer 204 if the view exists."""
    await (await reader(_asked(request), "exists", alias, namespace, view, kind="view")).check_exists()
    return Response(status_code=204)


@serves("replaceView")
async def replace_view(request: Request, alias: str, namespace: str, view: str) -> Response:
    """Commit updates to a view."""
    return _response(table_answer(await change(_asked(request), Operation.VIEW_REPLACE, alias, namespace, view)))


@serves("dropView")
async def drop_view(request: Request, alias: str, namespace: str, view: str) -> Response:
    """Drop a view; its metadata files stay."""
    await change(_asked(request), Operation.VIEW_DROP, alias, namespace, view)
    return Response(status_code=204)


@serves("renameView")
async def rename_view(request: Request, alias: str) -> Response:
    """Give a view another name, perhaps in another namespace."""
    await change(_asked(request), Operation.VIEW_RENAME_FROM, alias)
    return Response(status_code=204)


@serves("listFunctions")
async def list_functions(request: Request, alias: str, namespace: str) -> Response:
    """List the functions of a namespace."""
    found = await reader(_asked(request), "list", alias, namespace)
    page = await found.list_functions(**_page(request))
    # The specification names functions by their levels, and tables and views by namespace and name.
    return _json(_paged({"identifiers": [[*found.target.namespace, name] for name in page.names]}, page))


@serves("loadFunction")
async def load_function(request: Request, alias: str, namespace: str, function: str) -> Response:
    """Load a function's metadata."""
    return _response(await catalog_requests.load_function(_asked(request), alias, namespace, function))


@serves("getEvents")
async def get_events(request: Request, alias: str) -> Response:
    """Answer with a page of the catalog's events (a proposal to the specification, see `events/`)."""
    return _json(await catalog_requests.events(_asked(request), alias))


def _asked(request: Request) -> Asked:
    state = request.app.state
    return Asked(
        request.scope,
        request.receive,
        path=request.scope["path"],
        gateway=state.gateway,
        measures=state.measures,
    )


def _response(answer: Answer) -> Response:
    response = Response(answer.body, status_code=answer.status)
    response.raw_headers = list(answer.headers)
    return response


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
