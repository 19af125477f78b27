# SPDX-License-Identifier: Apache-2.0
"""
What the catalog's routes do with a request: find the target, have access judged, read it or commit to it, answer.

Who a request is from is found out before anything else is said about it. With that the rules in force are read, and of
a table its row, all at once (`gateway/fresh/`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import ANY, Shown, Snapshots
from gateway.catalogs.onward import DELEGATION_HEADER, HOPS_HEADER, Onward, parse_delegation, parse_hops
from gateway.commit.approved import Changed
from gateway.commit.as_known import commit
from gateway.commit.decision_ids import parse_idempotency_key
from gateway.commit.requests import Request as Mutating
from gateway.commit.requests import parse_content_length, read_body
from gateway.commit.transaction import commit_transaction
from gateway.errors import BadRequestError
from gateway.http import reads
from gateway.http.asked import NO_CONTENT, Answer, Asked, json_answer
from gateway.http.events.page import check_catalog, query_events
from gateway.http.events.query import BODY_SIZE_BYTES_MAX, parse_query
from gateway.http.operations import TAKE_KEY, endpoints_of
from gateway.http.tracing import traced
from gateway.identifiers import Named, Target, parse_alias, parse_target
from gateway.mutations import Operation
from gateway.policy.variables import RequestView

CLIENT_LENGTH_MAX: Final = 200
IDEMPOTENCY_KEY_LIFETIME: Final = "PT24H"
"""How long engines may send a request again under one key (ISO 8601); the log keeps what it has of it for good."""

_HOPS: Final = HOPS_HEADER.lower().encode()
_DELEGATION: Final = DELEGATION_HEADER.lower().encode()
_ALL_SNAPSHOTS: Final = Snapshots.ALL
_SNAPSHOTS: Final = {each.value: each for each in Snapshots}
_ENTITY_TAG: Final = re.compile(r'(?:W/)?("[^"]*")')


async def config(asked: Asked) -> Answer:
    """
    Answer with a catalog's configuration: the prefix, and which endpoints exist.
    """
    arrived = await asked.gateway.authenticator.arrive(asked.credentials())
    warehouse = asked.parameter("warehouse")
    if not warehouse:
        raise BadRequestError("expected the alias of a catalog, found none", field="warehouse")
    alias = parse_alias(warehouse, field="warehouse")
    found = await reads.configuration(asked.gateway, arrived, alias, onward(asked))
    endpoints = endpoints_of(arrived.state.catalogs[alias].kind, found)
    overrides = {**found.overrides, "prefix": f"iceberg/{alias}"}
    body = {
        "defaults": dict(found.defaults),
        "overrides": overrides,
        "endpoints": endpoints,
        "idempotency-key-lifetime": IDEMPOTENCY_KEY_LIFETIME,
    }
    return json_answer(orjson.dumps(body))


async def load_table(asked: Asked, alias: str, namespace: str, table: str) -> Answer:
    """
    Answer with a table's metadata, or 304 if the engine has it (RFC 9110, section 13.1.2).
    """
    began = perf_counter()
    found = await reader(asked, "load", alias, namespace, table)
    snapshots = _ALL_SNAPSHOTS
    if (requested := asked.parameter("snapshots")) is not None:
        if requested not in _SNAPSHOTS:
            raise BadRequestError(f"expected 'all' or 'refs', found {requested!r:.40}", field="snapshots")
        snapshots = _SNAPSHOTS[requested]
    return await _shown(asked, found, snapshots, began=began)


async def load_view(asked: Asked, alias: str, namespace: str, view: str) -> Answer:
    """
    Answer with a view's metadata, or 304 if the engine has it.
    """
    began = perf_counter()
    found = await reader(asked, "load", alias, namespace, view, kind="view")
    return await _shown(asked, found, _ALL_SNAPSHOTS, began=began)


async def load_function(asked: Asked, alias: str, namespace: str, function: str) -> Answer:
    """
    Answer with a function's metadata.
    """
    found = await reader(asked, "load", alias, namespace, function, kind="function")
    return json_answer(await found.load_function())


async def _shown(asked: Asked, found: reads.Reader, snapshots: Snapshots, *, began: float) -> Answer:
    permitted = perf_counter()
    shown = await found.show(snapshots, held=held_tags(asked.whole_header(b"if-none-match")))
    asked.measures.loaded(permit_s=permitted - began, show_s=perf_counter() - permitted)
    if shown.body is None:
        return Answer(304, ((b"etag", (shown.etag or "").encode()),))
    return json_answer(shown.body, shown.etag)


async def table_exists(asked: Asked, alias: str, namespace: str, table: str) -> Answer:
    """
    Answer 204 if the table exists.
    """
    await (await reader(asked, "exists", alias, namespace, table)).check_exists()
    return NO_CONTENT


async def commit_table(asked: Asked, alias: str, namespace: str, table: str) -> Answer:
    """
    Commit updates to a table.
    """
    return table_answer(await change(asked, Operation.TABLE_COMMIT, alias, namespace, table))


def table_answer(changed: Changed) -> Answer:
    """
    Return the answer to a commit or create: the table or view as it is loaded from now on, with its entity tag.
    """
    shown = changed.shown or Shown(None)
    return json_answer(shown.body or b"", shown.etag)


async def events(asked: Asked, alias: str) -> dict[str, Any]:
    """
    Answer with a page of a catalog's events.
    """
    gateway = asked.gateway
    arrived = await gateway.authenticator.arrive(asked.credentials())
    alias = parse_alias(alias)
    view = request_view(asked)
    await check_catalog(gateway, arrived, alias, view)
    length = parse_content_length(asked.header(b"content-length"))
    body = await read_body(asked.chunks(), content_length=length, size_bytes_max=BODY_SIZE_BYTES_MAX)
    return await query_events(gateway, arrived, alias, parse_query(body), view)


async def reader(
    asked: Asked,
    verb: str,
    alias: str,
    namespace: str | None = None,
    name: str | None = None,
    *,
    kind: Named = "table",
) -> reads.Reader:
    """
    Return the reader of the target that a path names, `name` being that of a `kind`: without a namespace, of the
    `parent` in the query.

    Raises:
        GatewayError: as `reads.permit`, or if credentials or names are not valid.
    """
    authenticator, credentials = asked.gateway.authenticator, asked.credentials()
    try:
        target = _target(asked, alias, namespace, name, kind=kind)
    except BadRequestError:
        await authenticator.authenticate(credentials)  # first: a stranger learns nothing else
        raise
    has_row = name is not None and kind != "function"
    arrived = await authenticator.arrive(credentials, target if has_row else None)
    view, rest = partial(request_view, asked), onward(asked)
    return await reads.permit(asked.gateway, arrived, target, verb=verb, request=view, onward=rest)


def _target(asked: Asked, alias: str, namespace: str | None, name: str | None, *, kind: Named) -> Target:
    if namespace is None:
        return Target(alias=parse_alias(alias), namespace=reads.parse_parent(asked.parameter("parent")))
    return parse_target(alias, namespace, name, kind=kind)


async def change(
    asked: Asked, operation: Operation, alias: str, namespace: str | None = None, name: str | None = None
) -> Changed:
    """
    Take a mutation through the commit flow.
    """
    mutating = _mutating(asked, operation, alias, namespace, name)
    with asked.measures.commit(operation) as done:
        return await commit(mutating, asked.gateway, traced(done))


async def commit_several(asked: Asked, alias: str) -> None:
    """
    Take a transaction through the commit flow.
    """
    mutating = _mutating(asked, Operation.TABLE_COMMIT, alias, None, None)
    with asked.measures.commit(Operation.TABLE_COMMIT) as done:
        await commit_transaction(mutating, asked.gateway, traced(done))


def _mutating(asked: Asked, operation: Operation, alias: str, namespace: str | None, name: str | None) -> Mutating:
    return Mutating(
        operation=operation,
        method=asked.method,
        path=asked.path,
        credentials=asked.credentials(),
        client=client_of(asked),
        address=asked.address,
        alias_segment=alias,
        namespace_segment=namespace,
        name_segment=name,
        purge=(asked.parameter("purgeRequested") or "").lower() == "true",
        idempotency_key=_idempotency_key(asked, operation),
        content_length=parse_content_length(asked.header(b"content-length")),
        chunks=asked.chunks(),
        onward=onward(asked),
    )


def _idempotency_key(asked: Asked, operation: Operation) -> UUID | None:
    """The key of a request that may be sent again; the header means nothing where the specification has none."""
    key = asked.header(b"idempotency-key")
    return None if key is None or operation.value not in TAKE_KEY else parse_idempotency_key(key)


def onward(asked: Asked) -> Onward:
    """
    Return what the request carries to a foreign catalog.

    Raises:
        BadRequestError: if the header with its hops is malformed.
    """
    return Onward(
        hops=parse_hops(asked.header(_HOPS)),
        delegation=parse_delegation(asked.header(_DELEGATION)),
        observe=asked.measures.upstream,
    )


def request_view(asked: Asked) -> RequestView:
    """
    Return a request as access rules and policies see it.
    """
    return RequestView(method=asked.method, path=asked.path, client_version=client_of(asked))


def client_of(asked: Asked) -> str:
    """
    Return the engine's name and version: Iceberg's clients send X-Client-Version; User-Agent names their HTTP library.
    """
    named = asked.header(b"x-client-version") or asked.header(b"user-agent") or ""
    return named[:CLIENT_LENGTH_MAX]


def held_tags(text: str) -> Collection[str]:
    """
    Return the entity tags in an If-None-Match header, as they are compared there: weak ones like strong ones.
    """
    if not text:
        return ()
    if text.strip() == "*":
        return (ANY,)
    return _ENTITY_TAG.findall(text)
