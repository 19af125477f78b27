# SPDX-License-Identifier: Apache-2.0
"""
Every route of the gateway, called with one tenant's key on another tenant's things: the answer is the one for things
that do not exist, and nothing of the other tenant is in it.

The routes are the application's own. One that is new fails here until `BODIES` says what is sent to it, and one with a
new parameter until `Named` says what the parameter may name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import UUID, uuid5

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from fastapi.routing import APIRoute

from gateway.identity.api_keys import mint_key
from ledger.signing.key_directory import create_key_directory
from testkit.gateway.restrictions import ORDERS
from testkit.gateway.sales import SCHEMA, properties
from testkit.gateway.token_gateway import unhurried
from testkit.gateway.view_requests import view_created, view_replaced
from testkit.servers.gateways import Gateway, sign
from testkit.system.two_tenants import Tenant, new_tenant, nobody_projects, run_event, size_of, tenant_client

__all__ = ["nobody_projects"]

METRICS, HEALTH, WEBHOOK = "/metrics", "/health", "/v1/webhooks/polaris"
OPEN: Final = {HEALTH, f"{HEALTH}/live", f"{HEALTH}/ready", "/docs", "/openapi.json", "/v1/openapi.json"}
"""Answered to everybody: they name nobody."""
BY_SIGNATURE: Final = {WEBHOOK}
BEYOND: Final = "999999999"
"""No log here has so many entries: an index names an entry of the caller's own log."""
ENDLESS: Final = "/v1/log/follow"
"""Its answer has no end: `tests/gateway/http/test_following.py`."""
READ_MODELS: Final = (
    *("/v1/tables", "/v1/impact/", "/v1/traverse/", "/v1/lineage/", "/v1/runs", "/v1/findings", "/v1/graphql"),
)
"""
What is told from read models, which have nothing here: of no thing, and of another's, that nothing is known. With read
models, `tests/gateway/http/test_looking.py` asks who sees what.
"""
"""Not a matter of keys: what is sent is signed."""
GUESS: Final = mint_key(lambda size: b"g" * size).format()
"""A key that nobody has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a tenant's things are called, or what nobody's are: by the parameters of routes, and in bodies."""

    name: str
    tenant: UUID
    origin: str
    key_ids: tuple[str, ...]
    size: int
    decision: str

    @classmethod
    def of(cls, tenant: Tenant) -> Named:
        """The names of a tenant's things."""
        return cls(
            name=tenant.name,
            tenant=tenant.founded.tenant,
            origin=tenant.founded.origin,
            key_ids=tenant.key_ids,
            size=tenant.size,
            decision=tenant.decision,
        )

    @classmethod
    def nobody(cls, like: Named) -> Named:
        """Names of the same form and length, which are nobody's."""
        tenant = UUID(int=like.tenant.int ^ 0xF0F0)
        return cls(
            name="z" + like.name[1:],
            tenant=tenant,
            origin=like.origin.replace(like.tenant.hex, tenant.hex),
            key_ids=tuple("0" * len(id_) for id_ in like.key_ids),
            size=like.size,
            decision=str(UUID(int=UUID(like.decision).int ^ 0xF0F0)),
        )

    @property
    def parameters(self) -> Mapping[str, Sequence[str]]:
        """What each parameter of a path may name."""
        return {
            "alias": [f"{self.name}-vault", f"{self.name}-far"],
            "namespace": [f"{self.name}-sales"],
            "table": [f"{self.name}-orders"],
            "view": [f"{self.name}-report"],
            "function": [f"{self.name}-count"],
            "policy_id": [f"{self.name}-policy"],
            "version": ["1"],
            "restriction_id": [f"{self.name}-restriction"],
            "rule_id": [f"{self.name}-rule"],
            "key_id": self.key_ids,
            "setting_id": [f"{self.name}-setting"],
            "decision": [self.decision],
            "finding": [BEYOND],
            "index": [BEYOND],
            "job": [str(uuid5(self.tenant, "job"))],
            "projection": [f"{self.name}-projection"],
            "preset": ["impact_analysis"],
            "dataset": [f"{self.name}-vault.{self.name}-sales.{self.name}-orders", f"dataset:{self.name}/files"],
            "place": [
                f"{self.origin}/{resource}"
                for resource in (
                    *("checkpoint", "receipt/0", "nothing"),
                    *(f"tile/{kind}/000.p/{self.size}" for kind in ("0", "entries")),
                )
            ],
        }

    def without_names(self, text: str) -> str:
        """Return `text` as it would be about anybody: with what these names were replaced."""
        for id_ in self.key_ids:
            text = text.replace(id_, "<key>")
        text = text.replace(self.decision, "<decision>")
        text = text.replace(str(uuid5(self.tenant, "job")), "<job>")
        for id_ in (str(self.tenant), self.tenant.hex):
            text = text.replace(id_, "<tenant>")
        return text.replace(self.name, "<name>")


def callback(named: Named) -> dict[str, Any]:
    """A callback of another catalog about one of its tables."""
    return {
        "tenant_id": str(named.tenant),
        "metadata_location": f"s3://{named.name}/1.metadata.json",
        "namespace": [f"{named.name}-sales"],
        "table_name": f"{named.name}-orders",
    }


def policy_files() -> dict[str, Any]:
    """A policy that is in no log."""
    return {"policies": [{"text": "id: p\nexpression: '!commit.purge'\nmessage: no\n"}]}


BODIES: Final[Mapping[tuple[str, str], Callable[[Named], Sequence[Any]]]] = {
    ("POST", "/v1/iceberg/{alias}/namespaces"): lambda named: [{"namespace": [f"{named.name}-sales"]}],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/properties"): lambda _: [{"updates": {"a": "b"}}],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/tables"): lambda named: [
        {"name": f"{named.name}-orders", "schema": SCHEMA},
        {"name": f"{named.name}-orders", "schema": SCHEMA, "stage-create": True},
    ],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}"): lambda _: [
        properties(a="b"),
        {"requirements": [{"type": "assert-create"}], "updates": []},
    ],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/register"): lambda named: [
        {"name": f"{named.name}-orders", "metadata-location": f"s3://{named.name}/1.metadata.json"},
    ],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}/unregister"): lambda _: [None],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}/metrics"): lambda _: [
        {"report-type": "scan-report", "table-name": "t", "snapshot-id": 1, "metrics": {}},
    ],
    ("POST", "/v1/iceberg/{alias}/events"): lambda named: [
        {},
        {"catalog-objects-by-name": [[f"{named.name}-sales"]], "page-size": 1},
    ],
    ("POST", "/v1/iceberg/{alias}/transactions/commit"): lambda named: [
        {"table-changes": [{"identifier": identifier, **properties(a="b")}]}
        for identifier in [{"namespace": [f"{named.name}-sales"], "name": f"{named.name}-orders"}]
    ],
    **{
        ("POST", f"/v1/iceberg/{{alias}}/{kind}/rename"): lambda named: [
            {
                "source": {"namespace": [f"{named.name}-sales"], "name": f"{named.name}-orders"},
                "destination": {"namespace": [f"{named.name}-sales"], "name": f"{named.name}-moved"},
            }
        ]
        for kind in ("tables", "views")
    },
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/views"): lambda named: [
        view_created(f"{named.name}-report"),
    ],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/register-view"): lambda named: [
        {"name": f"{named.name}-report", "metadata-location": f"s3://{named.name}/1.metadata.json"},
    ],
    ("POST", "/v1/iceberg/{alias}/namespaces/{namespace}/views/{view}"): lambda _: [
        properties(a="b"),
        view_replaced("SELECT 1"),
    ],
    ("POST", "/v1/policies"): lambda named: [
        {"id": f"{named.name}-policy", "expression": "true", "message": "mine"},
    ],
    ("PUT", "/v1/policies/{policy_id}"): lambda _: [{"expression": "true", "message": "mine"}],
    # Contents would make a draft of the caller's own, whatever others have.
    ("PUT", "/v1/policy-drafts/{policy_id}"): lambda _: [{"retire": True}],
    ("POST", "/v1/policy-drafts/{policy_id}/review"): lambda _: [
        {"version": 1, "verdict": verdict} for verdict in ("approve", "refuse")
    ],
    ("POST", "/v1/policies/test"): lambda _: [policy_files(), {**policy_files(), "mutation": True, "coverage": True}],
    ("POST", "/v1/policies/lint"): lambda _: [policy_files()],
    ("POST", "/v1/policies/compile"): lambda _: [policy_files(), {"expression": "commit.purge"}],
    # Without a file: a replay would be a job, with an id of its own.
    ("POST", "/v1/policy-replays"): lambda _: [{"policies": []}],
    ("POST", "/v1/policy-replays/{job}/attest"): lambda _: [None],
    ("POST", "/v1/findings/{finding}/review"): lambda _: [{"verdict": "dismissed", "reason": "not ours"}],
    ("POST", "/v1/restrictions"): lambda named: [
        {"id": f"{named.name}-restriction", "filter": "row.region == null", "schemas": {"orders": ORDERS}},
    ],
    ("PUT", "/v1/restrictions/{restriction_id}"): lambda _: [
        {"filter": "row.region == null", "schemas": {"orders": ORDERS}},
    ],
    # Contents would make a draft of the caller's own, whatever others have.
    ("PUT", "/v1/restriction-drafts/{restriction_id}"): lambda _: [{"retire": True}],
    ("POST", "/v1/restriction-drafts/{restriction_id}/review"): lambda _: [
        {"version": 1, "verdict": verdict} for verdict in ("approve", "refuse")
    ],
    ("POST", "/v1/access-rules"): lambda named: [
        {"id": f"{named.name}-rule", "effect": "forbid", "expression": "'nobody' in roles"},
    ],
    ("POST", "/v1/access-rules/import"): lambda named: [
        {"file": f"nessie.server.authorization.rules.{named.name}-rule=false", "dry_run": True},
    ],
    ("POST", "/v1/catalogs"): lambda named: [{"alias": f"{named.name}-vault", "kind": "builtin"}],
    ("POST", "/v1/catalogs/{alias}/check"): lambda _: [None],
    ("PUT", "/v1/settings/{setting_id}"): lambda _: [{"value": "keep"}],
    ("POST", "/v1/keys"): lambda named: [{"identity": f"eve@{named.name}.example", "roles": []}],
    ("POST", "/v1/keys/{key_id}/rotate"): lambda _: [{}, {"overlap_s": 0}],
    ("POST", "/v1/graphql"): lambda named: [
        {"query": query, "variables": {"name": name}}
        for name in [f"{named.name}-vault.{named.name}-sales.{named.name}-orders"]
        for query in (
            "query ($name: String!) { table(name: $name) { key } findings(table: $name) { items { key } } }",
            "query ($name: String!) { tables(name: $name) { items { key vertex { properties } } } }",
        )
    ],
    ("POST", "/v1/evidence"): lambda named: [
        {"decision": named.decision},
        {"table": f"{named.name}-vault.{named.name}-sales.{named.name}-orders"},
    ],
    ("POST", "/v1/projections/{projection}/rebuild"): lambda _: [{}],
    ("POST", "/v1/dead-letters/replay"): lambda _: [{}],
    ("POST", "/v1/lineage"): lambda named: [run_event(named.name, named.name)],
    ("POST", "/v1/lineage/batch"): lambda named: [[run_event(named.name, named.name)]],
    ("POST", "/v1/oauth/tokens"): lambda named: [
        urlencode({"grant_type": "client_credentials", "client_id": key_id, "client_secret": GUESS})
        for key_id in named.key_ids
    ],
    ("POST", WEBHOOK): lambda named: [callback(named)],
}
"""What is sent, by method and path: bodies that name those things; a text is a form, everything else is JSON."""
QUERIES: Final[Mapping[tuple[str, str], Callable[[Named], Sequence[dict[str, str]]]]] = {
    ("GET", "/v1/config"): lambda named: [{"warehouse": f"{named.name}-vault"}],
    ("GET", "/v1/policies/{policy_id}/diff"): lambda _: [{}, {"from": "1", "to": "draft"}],
    ("GET", "/v1/access/who"): lambda named: [
        {"operation": "table.load", "target": f"{named.name}-vault.{named.name}-sales.{named.name}-orders"}
    ],
    ("GET", "/v1/access/what"): lambda named: [{"key": key_id} for key_id in named.key_ids],
    ("GET", "/v1/tables"): lambda named: [{}, {"catalog": f"{named.name}-vault"}, {"name": f"{named.name}-orders"}],
    ("GET", "/v1/findings"): lambda named: [
        {},
        {"table": f"{named.name}-vault.{named.name}-sales.{named.name}-orders"},
    ],
    ("GET", "/v1/log/entries"): lambda named: [
        {"key": f"table:{named.name}-vault/{named.name}-sales/{named.name}-orders"}
    ],
    ("GET", "/v1/drops"): lambda named: [{}, {"alias": f"{named.name}-vault"}],
    ("GET", "/v1/dead-letters"): lambda named: [{}, {"source": f"handler:{named.name}"}],
    ("GET", "/v1/iceberg/{alias}/namespaces"): lambda named: [{}, {"parent": f"{named.name}-sales"}],
    ("DELETE", "/v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}"): lambda _: [{}, {"purgeRequested": "true"}],
}
"""Parameters behind the path, where there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None
    headers: Mapping[str, str]

    async def send(self, http: httpx.AsyncClient) -> httpx.Response:
        """Send it; return the answer."""
        return await http.request(
            self.method, self.path, params=dict(self.query), content=self.body, headers=dict(self.headers)
        )


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """
    Return the method and path of every route; each router that is included is looked into.

    Pages take no credentials but a session's: `tests/gateway/console` asks for every one of them, and
    `tests/gateway/agents` speaks the protocol of agents.
    """
    found: list[tuple[str, str]] = []
    waiting = list(app.routes)
    for route in waiting:
        if isinstance(route, APIRoute):
            if not route.path_format.startswith(("/console", "/mcp", ENDLESS)):
                found += ((method, route.path_format) for method in sorted(route.methods or ()))
        elif (router := getattr(route, "original_router", None)) is not None:
            included: Any = route
            assert not included.include_context.prefix, "a prefix would be a part of the path"
            waiting += router.routes
        else:
            raise AssertionError(f"{route}: expected a route of the gateway, found {type(route).__name__}")
    assert len(found) == len(set(found))
    # What names a thing comes before what makes one: whose a thing is must be clear when it is asked for.
    return sorted(found, key=lambda route: "{" not in route[1])


def is_of_read_models(path: str) -> bool:
    """Return whether a route, given by its path as it is declared, tells from read models alone."""
    return path.startswith(READ_MODELS) or path == "/v1/decisions/{decision}"


def requests(app: FastAPI, named: Named) -> Iterator[tuple[str, Request]]:
    """Yield requests for every route (with its path as it is declared), each with everything that may be named."""
    for method, path in routes(app):
        parameters = [name.partition("}")[0].partition(":")[0] for name in path.split("{")[1:]]
        bodies = BODIES[method, path](named) if method in {"POST", "PUT", "PATCH"} else [None]
        queries = QUERIES[method, path](named) if (method, path) in QUERIES else [{}]
        for chosen, query, body in product(product(*(named.parameters[name] for name in parameters)), queries, bodies):
            is_place = parameters == ["place"]
            values = {
                name: quote(value, safe="/" if is_place else "") for name, value in zip(parameters, chosen, strict=True)
            }
            is_form = isinstance(body, str)
            content = body.encode() if is_form else None if body is None else json.dumps(body).encode()
            content_type = "application/x-www-form-urlencoded" if is_form else "application/json"
            signature = {"X-Polaris-Signature": hmac.digest(b"guess", content or b"", hashlib.sha256).hex()}
            headers = {"Content-Type": content_type, **(signature if path in BY_SIGNATURE else {})}
            yield path, Request(method=method, path=path.format(**values), query=query, body=content, headers=headers)


@pytest_asyncio.fixture
async def tenants(gateway: Gateway) -> AsyncIterator[tuple[Tenant, Tenant]]:
    """Two tenants that have lived."""
    both = [await new_tenant(gateway, name) for name in ("acmemark", "boltmark")]
    # So that their logs are published.
    await sign(gateway, create_key_directory(gateway.services.installation.keys))
    both = [replace(tenant, size=await size_of(gateway.services, tenant)) for tenant in both]
    yield both[0], both[1]
    for tenant in both:
        await tenant.http.aclose()


def shown(answer: httpx.Response) -> str:
    """All that an answer says, but for the id that each has of its own."""
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
    return f"{answer.status_code} {headers} {answer.content.decode('utf-8', 'backslashreplace')}"


def same_for_anybody(answer: httpx.Response, *names: Named) -> str:
    """Return an answer without what it repeats of this request or earlier ones, and without what is new each time."""
    own = {"content-length", "date", "x-request-id"}
    headers = {name: value for name, value in answer.headers.items() if name not in own}
    if headers.get("etag", "").startswith("W/"):
        headers["etag"] = "<of the path>"  # a hash of what was asked, and of how far the caller's own read models are
    content = answer.content.decode("utf-8", "backslashreplace")
    if answer.status_code == 201 and answer.headers.get("content-type", "").startswith("application/json"):
        content = str(sorted(answer.json()))  # a key of the caller's own, say, which differs each time
    content = re.sub(r'(?<=_s":)[0-9.]+', "<seconds>", content)  # how old something is
    text = f"{answer.status_code} {headers} {content}"
    for named in names:
        text = named.without_names(text)
    return text


async def everything_of(tenant: Tenant) -> list[str]:
    """Return what a tenant sees of its own."""
    configuration = (
        *(
            "policies",
            "policy-drafts",
            "restrictions",
            "restriction-drafts",
            "access-rules",
            "catalogs",
            "keys",
            "settings",
            "tenant",
        ),
    )
    paths = (*(f"/v1/{name}" for name in configuration), "/v1/purges", "/v1/drops", "/v1/dead-letters", tenant.orders)
    return [shown(await tenant.http.get(path)) for path in paths]


async def test_every_route_answers_about_another_tenants_things_as_about_nobodys(
    gateway: Gateway, tenants: tuple[Tenant, Tenant]
) -> None:
    services = gateway.services
    for tenant, other in (tenants, tenants[::-1]):
        theirs = Named.of(other)
        nobodys = Named.nobody(theirs)
        before, size = await everything_of(other), await size_of(services, other)
        pairs = zip(requests(gateway.app, theirs), requests(gateway.app, nobodys), strict=True)
        for (path, of_other), (_, of_nobody) in pairs:
            found, unknown = await of_other.send(tenant.http), await of_nobody.send(tenant.http)
            where = f"{of_other.method} {of_other.path}: {found.text:.300}"
            assert found.status_code < 500 or is_of_read_models(path), where
            assert same_for_anybody(found, theirs, nobodys) == same_for_anybody(unknown, theirs, nobodys), where
            assert not any(mark in shown(found) for mark in other.marks if mark not in of_other.path), where
            if ("{" in path or path in {METRICS, WEBHOOK}) and not is_of_read_models(path):
                assert 400 <= found.status_code < 500, where
        assert await everything_of(other) == before
        assert await size_of(services, other) == size


async def test_every_route_but_what_is_open_asks_who_is_there(
    gateway: Gateway, tenants: tuple[Tenant, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    unhurried(monkeypatch)
    _, other = tenants
    forged = tenants[0].founded.key.secret[:-4] + other.founded.key.secret[-4:]
    stranger = mint_key(lambda size: b"s" * size).format()
    for key in (None, "", forged, stranger, other.founded.key.secret[:-1], "Basic Zm9v"):
        async with tenant_client(gateway.app, key=key) as http:
            for path, request in requests(gateway.app, Named.of(other)):
                answer = await request.send(http)
                expected = {200} if path in OPEN else {403} if path == METRICS else {401}
                assert answer.status_code in expected, f"{request.method} {request.path} with key {key!r}"
                assert not any(mark in shown(answer) for mark in other.marks if mark not in request.path)


async def test_every_route_shows_a_tenant_its_own_things_alone(
    gateway: Gateway, tenants: tuple[Tenant, Tenant]
) -> None:
    """The same requests find what is there: else that nothing is shown of another's would say little."""
    for tenant, other in (tenants, tenants[::-1]):
        shown_to = ""
        for path, request in requests(gateway.app, Named.of(tenant)):
            if request.method in {"GET", "HEAD"} and path not in {METRICS, HEALTH}:
                answer = await request.send(tenant.http)
                assert not any(mark in shown(answer) for mark in other.marks), request.path
                assert other.name not in shown(answer), request.path
                nowhere = ("nothing", "receipt/0", BEYOND, "-projection")
                is_there = not re.search(
                    "-far|/(evidence|policy-replays)/", request.path
                ) and not request.path.endswith(nowhere)
                if is_there and not is_of_read_models(path):
                    # A built-in catalog has no functions, and the names of settings are the same for all.
                    there = {404} if path.endswith(("{function}", "{setting_id}")) else {200, 204}
                    assert answer.status_code in there, f"{request.path}: {answer.text:.200}"
                shown_to += shown(answer)
        assert tenant.secret in shown_to


async def test_the_routes_are_the_applications_own(gateway: Gateway) -> None:
    found = routes(gateway.app)
    assert {path for _, path in found} >= {"/v1/config", "/v1/keys/{key_id}", "/log/{place}", METRICS, HEALTH, WEBHOOK}
    assert {route for route in found if route[0] in {"POST", "PUT", "PATCH"}} == BODIES.keys()
    assert QUERIES.keys() <= set(found)


def test_a_route_of_a_kind_that_is_not_known_is_not_passed_over() -> None:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.mount("/hidden", FastAPI())
    with pytest.raises(AssertionError, match="expected a route of the gateway"):
        routes(app)
