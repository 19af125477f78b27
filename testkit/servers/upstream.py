# SPDX-License-Identifier: Apache-2.0
"""
A simulator of another catalog: the Iceberg REST protocol over tables in memory.

Requirements are checked and updates applied as the reference does it (`gateway.metadata`), one mutation at a time, so
that what a commit becomes is decided here as it is by a real server. It never fails: that is the wire's part
(`faulty_wire`), so the same faults happen to it and to a real server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

import orjson
from fastapi import FastAPI, Request, Response

from gateway.errors import ConflictError, GatewayError, NotFoundError
from gateway.metadata import (
    ASSERT_CREATE,
    apply_updates,
    check_requirements,
    create_updates,
    parse_requirements,
    parse_updates,
)
from testkit.servers.loopback import serve

EPOCH_MS: Final = 1_700_000_000_000
SEPARATOR: Final = "\x1f"

Name = tuple[tuple[str, ...], str]


@dataclass(slots=True, kw_only=True)
class Table:
    """A table as it is: its metadata and where that would be."""

    metadata: dict[str, Any]
    location: str


@dataclass(slots=True, kw_only=True)
class Upstream:
    """
    A catalog in memory, which clients find under `prefix`. Its methods are what its routes do: a test that uses them
    commits behind the gateway's back.
    """

    prefix: str = "main"
    namespaces: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)
    tables: dict[Name, Table] = field(default_factory=dict)
    mutations: int = 0
    """Changes that were made; the clock, too, of the tables."""

    def create_namespace(self, namespace: tuple[str, ...], properties: Mapping[str, str]) -> None:
        """Create a namespace; ConflictError if it exists."""
        if namespace in self.namespaces:
            raise ConflictError(f"Namespace already exists: {'.'.join(namespace)}", kind="AlreadyExistsException")
        self.namespaces[namespace] = dict(properties)
        self.mutations += 1

    def update_namespace(self, namespace: tuple[str, ...], body: Mapping[str, Any]) -> dict[str, list[str]]:
        """Set and remove properties of a namespace; return which."""
        properties = self.namespace_properties(namespace)
        updates, removals = body.get("updates") or {}, body.get("removals") or []
        removed = [name for name in removals if properties.pop(name, None) is not None]
        properties.update(updates)
        self.mutations += 1
        return {
            "updated": list(updates),
            "removed": removed,
            "missing": [each for each in removals if each not in removed],
        }

    def drop_namespace(self, namespace: tuple[str, ...]) -> None:
        """Drop an empty namespace."""
        self.namespace_properties(namespace)
        if any(each == namespace for each, _ in self.tables):
            raise ConflictError(f"Namespace {'.'.join(namespace)} is not empty.", kind="NamespaceNotEmptyException")
        del self.namespaces[namespace]
        self.mutations += 1

    def create_table(self, namespace: tuple[str, ...], body: Mapping[str, Any]) -> Table:
        """Create a table, or, for a staged create, return what it would be."""
        self.namespace_properties(namespace)
        name = (namespace, body["name"])
        if name in self.tables:
            raise ConflictError(
                f"Table already exists: {'.'.join((*namespace, body['name']))}", kind="AlreadyExistsException"
            )
        table_uuid = str(uuid4())
        location = body.get("location") or f"file:///upstream/{table_uuid}"
        updates = create_updates(body, table_uuid=table_uuid, location=location)
        if body.get("stage-create"):
            return Table(metadata=apply_updates(None, updates, now_ms=self._now_ms(), base_location=None), location="")
        return self._put(name, apply_updates(None, updates, now_ms=self._now_ms(), base_location=None))

    def table(self, namespace: tuple[str, ...], name: str) -> Table:
        """Return a table; NotFoundError if there is none."""
        found = self.tables.get((namespace, name))
        if found is None:
            text = f"Table does not exist: {'.'.join((*namespace, name))}"
            raise NotFoundError(text, kind="NoSuchTableException")
        return found

    def commit(self, namespace: tuple[str, ...], name: str, body: Mapping[str, Any]) -> Table:
        """Commit updates to a table if the requirements hold."""
        requirements = parse_requirements(body.get("requirements"))
        updates = parse_updates(body.get("updates"))
        creates = ASSERT_CREATE in requirements
        before = self.tables.get((namespace, name)) if creates else self.table(namespace, name)
        check_requirements(before.metadata if before else None, requirements)
        after = apply_updates(
            before.metadata if before else None,
            updates,
            now_ms=self._now_ms(),
            base_location=before.location if before else None,
        )
        return self._put((namespace, name), after)

    def drop_table(self, namespace: tuple[str, ...], name: str) -> None:
        """Drop a table."""
        self.table(namespace, name)
        del self.tables[namespace, name]
        self.mutations += 1

    def rename_table(self, body: Mapping[str, Any]) -> None:
        """Give a table another name; ConflictError if that is taken."""
        source, destination = ((tuple(body[end]["namespace"]), body[end]["name"]) for end in ("source", "destination"))
        found = self.table(*source)
        self.namespace_properties(destination[0])
        if destination in self.tables:
            raise ConflictError(f"Table already exists: {destination[1]}", kind="AlreadyExistsException")
        del self.tables[source]
        self.tables[destination] = found
        self.mutations += 1

    def namespace_properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        """Return the properties of a namespace; NotFoundError if there is none."""
        if namespace not in self.namespaces:
            raise NotFoundError(f"Namespace does not exist: {'.'.join(namespace)}", kind="NoSuchNamespaceException")
        return self.namespaces[namespace]

    def _put(self, name: Name, metadata: dict[str, Any]) -> Table:
        self.mutations += 1
        location = f"{metadata['location']}/metadata/{self.mutations:05d}-{UUID(int=self.mutations)}.metadata.json"
        self.tables[name] = Table(metadata=metadata, location=location)
        return self.tables[name]

    def _now_ms(self) -> int:
        return EPOCH_MS + self.mutations * 1_000


@asynccontextmanager
async def serve_upstream(upstream: Upstream) -> AsyncIterator[str]:
    """Yield the base URL, before /v1, under which `upstream` is served."""
    async with serve(app_of(upstream)) as url:
        yield url


def app_of(upstream: Upstream) -> FastAPI:
    """Return the application with the routes of `upstream` (Iceberg REST specification, tables and namespaces)."""
    app = FastAPI()

    @app.exception_handler(GatewayError)
    async def refused(_: Request, error: GatewayError) -> Response:
        details = {"message": str(error), "type": error.kind, "code": error.status}
        return _json({"error": details}, status=error.status)

    @app.get("/v1/config")
    async def config() -> Response:
        return _json({"defaults": {}, "overrides": {"prefix": upstream.prefix}})

    namespaces = f"/v1/{upstream.prefix}/namespaces"
    _add_namespaces(app, upstream, namespaces)
    _add_tables(app, upstream, f"{namespaces}/{{namespace}}/tables")

    @app.post(f"/v1/{upstream.prefix}/tables/rename")
    async def rename_table(request: Request) -> Response:
        upstream.rename_table(await _body(request))
        return Response(status_code=204)

    return app


def _add_namespaces(app: FastAPI, upstream: Upstream, namespaces: str) -> None:
    @app.get(namespaces)
    async def list_namespaces() -> Response:
        return _json({"namespaces": [list(each) for each in upstream.namespaces]})

    @app.post(namespaces)
    async def create_namespace(request: Request) -> Response:
        body = await _body(request)
        properties = body.get("properties") or {}
        upstream.create_namespace(tuple(body["namespace"]), properties)
        return _json({"namespace": body["namespace"], "properties": properties})

    @app.get(f"{namespaces}/{{namespace}}")
    async def load_namespace(namespace: str) -> Response:
        properties = upstream.namespace_properties(_levels(namespace))
        return _json({"namespace": list(_levels(namespace)), "properties": properties})

    @app.post(f"{namespaces}/{{namespace}}/properties")
    async def update_namespace(namespace: str, request: Request) -> Response:
        return _json(upstream.update_namespace(_levels(namespace), await _body(request)))

    @app.delete(f"{namespaces}/{{namespace}}")
    async def drop_namespace(namespace: str) -> Response:
        upstream.drop_namespace(_levels(namespace))
        return Response(status_code=204)


def _add_tables(app: FastAPI, upstream: Upstream, tables: str) -> None:
    @app.get(tables)
    async def list_tables(namespace: str) -> Response:
        levels = _levels(namespace)
        upstream.namespace_properties(levels)
        named = [{"namespace": list(levels), "name": name} for each, name in upstream.tables if each == levels]
        return _json({"identifiers": named})

    @app.post(tables)
    async def create_table(namespace: str, request: Request) -> Response:
        return _loaded(upstream.create_table(_levels(namespace), await _body(request)))

    @app.get(f"{tables}/{{name}}")
    async def load_table(namespace: str, name: str) -> Response:
        return _loaded(upstream.table(_levels(namespace), name))

    @app.head(f"{tables}/{{name}}")
    async def table_exists(namespace: str, name: str) -> Response:
        upstream.table(_levels(namespace), name)
        return Response(status_code=204)

    @app.post(f"{tables}/{{name}}")
    async def commit(namespace: str, name: str, request: Request) -> Response:
        return _loaded(upstream.commit(_levels(namespace), name, await _body(request)))

    @app.delete(f"{tables}/{{name}}")
    async def drop_table(namespace: str, name: str) -> Response:
        upstream.drop_table(_levels(namespace), name)
        return Response(status_code=204)


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split(SEPARATOR))


async def _body(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(await request.body())
    return body


def _loaded(table: Table) -> Response:
    return _json({"metadata-location": table.location or None, "metadata": table.metadata, "config": {}})


def _json(content: object, *, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status_code=status, media_type="application/json")
