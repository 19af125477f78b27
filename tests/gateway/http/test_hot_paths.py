# SPDX-License-Identifier: Apache-2.0
"""
The way past FastAPI: whatever a request is, its answer is the one that it gets through FastAPI.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
import pytest_asyncio
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from gateway.commit.metrics import Measures
from gateway.fresh import Fresh, FreshReads, Question
from gateway.http.app import Application
from gateway.http.hot_paths import HotPaths
from ledger.errors import BrokenError, Fault, LogUnavailableError
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.sales import NAMESPACES, ORDERS, TABLES, another_key, properties
from testkit.servers.gateways import Gateway, app_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTHING: Final = json.dumps({"requirements": [], "updates": []}).encode()
"""A commit that leaves the table as it is: its answer is the same each time."""
FAILS: Final = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as a server hands it to an application; `key` stands for the tenant's."""

    method: str = "GET"
    path: bytes = ORDERS.encode()
    query: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ((b"authorization", b"Bearer key"),)
    pieces: Sequence[bytes] = (b"",)
    hangs_up: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.method} {self.path!r:.80}?{self.query!r:.40} {self.headers!r:.120} {self.pieces!r:.60} {self.more}"
        )

    def scope(self, key: str) -> Scope:
        headers = [(name, value.replace(b"Bearer key", f"Bearer {key}".encode())) for name, value in self.headers]
        path = self.path.decode("latin-1")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": path,
            "raw_path": self.path,
            "query_string": self.query,
            "root_path": "",
            "headers": [(name, value.replace(b"KEY", key.encode())) for name, value in headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            **self.more,
        }


KEY: Final = (b"authorization", b"Bearer key")
JSON: Final = (b"content-type", b"application/json")


def get(path: str | bytes = ORDERS, query: bytes = b"", *headers: tuple[bytes, bytes], **more: Any) -> Sent:
    return Sent(path=path.encode() if isinstance(path, str) else path, query=query, headers=(KEY, *headers), **more)


def post(*pieces: bytes, path: str = ORDERS, headers: Sequence[tuple[bytes, bytes]] = (), **more: Any) -> Sent:
    return Sent(method="POST", path=path.encode(), headers=(KEY, JSON, *headers), pieces=pieces or (b"",), **more)


def body(**members: Any) -> bytes:
    return json.dumps({"requirements": [], "updates": [], **members}).encode()


CONFIG = "/v1/config"
PATHS: Final = (
    ORDERS, f"{TABLES}/none", f"{NAMESPACES}/none/tables/none", f"{NAMESPACES}/sales%1Forders/tables/snapshots",
    f"{ORDERS}/", f"{TABLES}//orders", f"{NAMESPACES}//tables/orders", f"{TABLES}/",
    "/v1/iceberg//namespaces/a/tables/b", f"{TABLES}/%6frders", f"{TABLES}/%2F", f"{TABLES}/%2f", f"{TABLES}/a%2Fb",
    f"{TABLES}/%FF", f"{TABLES}/%00",
    f"{TABLES}/%", f"{TABLES}/%zz", f"{TABLES}/%E2%82", f"{TABLES}/..", f"{TABLES}/%2E%2E", f"{TABLES}/.",
    f"{TABLES}/%20",
    f"{TABLES}/{'x' * 255}", f"{TABLES}/{'x' * 256}", f"{TABLES}/{'%C3%BC' * 255}", f"{TABLES}/{'x' * 17_000}",
    f"{NAMESPACES}/%1F/tables/orders", f"{NAMESPACES}/{'%1F'.join('abcdefghijklmnopq')}/tables/t",
    f"{NAMESPACES}/{'x' * 250}%1F{'y' * 250}/tables/{'%C3%BC' * 200}", f"{NAMESPACES}/a+b/tables/c;d,e=f&g",
    "/v1/iceberg/sea/namespaces/sales/tables/orders", "/v1/iceberg/la%20ke/namespaces/sales/tables/orders",
    "/v1/iceberg/lake%2Fnamespaces/sales/tables/orders", f"/v1/iceberg/{'x' * 65}/namespaces/sales/tables/orders",
    "/v1/iceberg%2Flake/namespaces/sales/tables/orders", "/v1/Iceberg/lake/namespaces/sales/tables/orders",
    "/V1/iceberg/lake/namespaces/sales/tables/orders", "/v1/iceberg/lake/Namespaces/sales/tables/orders",
    "/v1//iceberg/lake/namespaces/sales/tables/orders", f"/{ORDERS}", f"{ORDERS}/plan", f"{ORDERS}?x", f"{ORDERS}#x",
    f"{TABLES}/or ders", f"{TABLES}/orders\n", f"{TABLES}/\u00e9", f"{TABLES}/a\\b", f"{TABLES}/{{x}}",
    CONFIG, f"{CONFIG}/", "/v1/%63onfig", "/V1/config", "/v1/config%2F", "/v1/config;x", "/v1/configs",
)  # fmt: skip
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "OPTIONS", "PATCH", "get", "post", "TRACE", "BREW")
QUERIES: Final = (
    b"", b"snapshots=all", b"snapshots=refs", b"snapshots=none", b"snapshots=", b"snapshots",
    b"snapshots=all&snapshots=refs",
    b"snapshots=refs&snapshots=all", b"Snapshots=none", b"snapshots=%72efs", b"snapshots=re%66s", b"snapshots=%FF",
    b"snapshots=refs;x=1", b"&&&", b"=", b"%", b"x=" + b"y" * 20_000, b"purgeRequested=true", b"\xff=\xfe",
    b"a" * 40_000,
    b"referenced-by=x", b"snapshots=refs+", b"?snapshots=refs",
)  # fmt: skip
CONFIG_QUERIES: Final = (
    b"", b"warehouse=lake", b"warehouse=", b"warehouse", b"warehouse=sea", b"warehouse=lake&warehouse=sea",
    b"warehouse=sea&warehouse=lake", b"warehouse=la%6Be", b"warehouse=la ke", b"warehouse=%00", b"Warehouse=lake",
    b"warehouse=" + b"x" * 65, b"warehouse=lake&x=y",
)  # fmt: skip
HEADERS: Final[tuple[tuple[tuple[bytes, bytes], ...], ...]] = (
    (),
    (KEY,),
    (KEY, KEY),
    ((b"x-api-key", b"KEY"),),
    ((b"x-api-key", b"KEY"), KEY),
    ((b"x-api-key", b"KEY"), (b"x-api-key", b"KEY")),
    ((b"x-api-key", b""),),
    ((b"authorization", b""),),
    ((b"authorization", b"Bearer"),),
    ((b"authorization", b"Bearer nobody"),),
    ((b"authorization", b"bearer KEY"),),
    ((b"authorization", b"Bearer  KEY "),),
    ((b"authorization", b"Basic KEY"),),
    ((b"authorization", b"Bearer \xff\xfe"),),
    ((b"authorization", b"Bearer EVE"),),
    (KEY, (b"content-encoding", b"gzip")),
    (KEY, (b"content-encoding", b"identity")),
    (KEY, (b"content-encoding", b"br")),
    (KEY, (b"content-encoding", b"gzip"), (b"content-encoding", b"gzip")),
    (KEY, (b"content-encoding", b"")),
    (KEY, (b"x-lakeproof-hops", b"nonsense")),
    (KEY, (b"x-lakeproof-hops", b"i/" + b"0" * 32 + b"/a")),
    (KEY, (b"x-lakeproof-hops", b",".join([b"i/" + b"0" * 32 + b"/a"] * 9))),
    (KEY, (b"x-lakeproof-hops", b""), (b"x-lakeproof-hops", b"nonsense")),
    (KEY, (b"x-lakeproof-hops", b"\xff")),
    (KEY, (b"x-iceberg-access-delegation", b"vended-credentials,remote-signing")),
    (KEY, (b"x-client-version", b"x" * 300), (b"user-agent", b"y")),
    (KEY, (b"accept", b"text/html")),
    (KEY, (b"accept-encoding", b"gzip")),
    (KEY, (b"expect", b"100-continue")),
    (KEY, (b"if-none-match", b"")),
    (KEY, (b"if-none-match", b"*")),
    (KEY, (b"if-none-match", b"ETAG")),
    (KEY, (b"if-none-match", b"W/ETAG")),
    (KEY, (b"if-none-match", b'"a", ETAG')),
    (KEY, (b"if-none-match", b'"a"'), (b"if-none-match", b"ETAG")),
    (KEY, (b"if-none-match", b'"a"'), (b"if-none-match", b'"b"')),
    (KEY, (b"if-none-match", b"\xff, * \", 'a'")),
    (KEY, (b"if-none-match", b"ETAG"), (b"content-length", b"0")),
)
BODIES: Final = (
    post(NOTHING),
    post(*(NOTHING[at : at + 1] for at in range(len(NOTHING)))),
    post(NOTHING, b"", b""),
    post(b"", NOTHING),
    post(NOTHING, headers=[(b"content-length", b"%d" % len(NOTHING))]),
    post(NOTHING, headers=[(b"content-length", b"%d" % (len(NOTHING) + 1))]),
    post(NOTHING, headers=[(b"content-length", b"1")]),
    post(NOTHING, headers=[(b"content-length", b"nonsense")]),
    post(NOTHING, headers=[(b"content-length", b"99999999999")]),
    post(NOTHING, headers=[(b"content-length", b"\xb2")]),
    post(NOTHING, headers=[(b"content-type", b"text/plain")]),
    post(b""),
    post(b"{"),
    post(b"[]"),
    post(b"null"),
    post(b"\xff"),
    post(b"[" * 5_000),
    post(body(updates=[{"action": "unknown"}])),
    post(body(requirements=[{"type": "unknown"}])),
    post(body(requirements=[FAILS])),
    post(body(updates={})),
    post(body(identifier={"namespace": ["sales"], "name": "other"})),
    post(json.dumps(properties(a="\ud800")).encode()),
    post(b'{"requirements": [], "requirements": [], "updates": []}'),
    post(b" " * 100 + NOTHING),
    post(NOTHING, query=b"purgeRequested=true"),
    post(NOTHING, query=b"purgeRequested=TRUE&purgeRequested=no"),
    post(NOTHING, hangs_up=True),
    post(NOTHING[:5], hangs_up=True),
    post(hangs_up=True),
    post(gzip.compress(NOTHING, mtime=0), headers=[(b"content-encoding", b"gzip")]),
    post(gzip.compress(NOTHING, mtime=0)[:-3], headers=[(b"content-encoding", b"x-gzip")]),
    post(NOTHING, headers=[(b"content-encoding", b"gzip")]),
    post(NOTHING, headers=[(b"content-encoding", b"br")]),
    post(NOTHING, headers=[(b"content-encoding", b"identity")]),
    post(NOTHING, path=f"{TABLES}/none"),
    post(NOTHING, path="/v1/iceberg/sea/namespaces/sales/tables/orders"),
    post(body(requirements=[{"type": "assert-create"}])),
    Sent(method="POST", headers=(), pieces=(NOTHING,)),
    Sent(method="POST", headers=((b"authorization", b"Bearer nobody"),), pieces=(NOTHING,)),
    Sent(method="POST", headers=((b"authorization", b"Bearer EVE"),), pieces=(NOTHING,)),
    Sent(method="GET", headers=(KEY, (b"content-length", b"3")), pieces=(b"abc",)),
)
SCOPES: Final = (
    get(more={"root_path": "/prefix"}),
    get(more={"raw_path": b""}),
    get(more={"raw_path": None}),
    get(more={"path": "/v1/nothing"}),
    get(CONFIG, b"warehouse=lake", more={"root_path": "/v1"}),
    get(CONFIG, b"warehouse=lake", more={"raw_path": b"/v1/%63onfig"}),
    get(more={"client": None}),
    get(more={"http_version": "1.0"}),
    get(more={"scheme": "https"}),
)


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer, whole."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def ask(app: FastAPI, sent: Sent, key: str) -> Heard:
    """Send a request to an application, as a server does."""
    messages: list[Message] = []
    pieces = list(sent.pieces)

    async def receive() -> Message:
        if not pieces:
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces) or sent.hangs_up}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(sent.scope(key), receive, send)
    start, *rest = messages
    assert start["type"] == "http.response.start"
    assert not rest[-1].get("more_body")
    content = b"".join(message.get("body", b"") for message in rest)
    return Heard(start["status"], without_id(start["headers"]), content)


def without_id(headers: Iterable[Iterable[bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, sorted, without the id of its request, which each has one of."""
    fields = sorted((name, value) for name, value in headers)
    (own,) = [value for name, value in fields if name == b"x-request-id"]
    assert re.fullmatch(rb"[0-9a-f]{32}", own)
    return [(name, value) for name, value in fields if value != own]


class Passed:
    """What stands behind the first way, and how many requests came to it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The same gateway twice: with the way past FastAPI, and without it."""

    hot: Application
    plain: Application
    passed: Passed
    eve: str
    etag: str
    hot_measures: Measures
    plain_measures: Measures

    async def agree(self, sent: Sent, key: str) -> Heard:
        """Ask both; return their one answer."""
        named = replace(
            sent,
            headers=[
                (name, value.replace(b"EVE", self.eve.encode()).replace(b"ETAG", self.etag.encode()))
                for name, value in sent.headers
            ],
        )
        heard = await ask(self.hot, named, key)
        assert heard == await ask(self.plain, named, key), str(sent)
        return heard

    async def is_past(self, sent: Sent, key: str) -> bool:
        """Whether a request goes past FastAPI."""
        before = self.passed.count
        await ask(self.hot, sent, key)
        return self.passed.count == before


def without_hot_paths(app: Application) -> Application:
    """Return the application with FastAPI alone."""
    assert isinstance(app.first, HotPaths)
    app.first = app.first._app
    return app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways(module_sales: Gateway) -> Ways:
    """Both ways to one gateway."""
    hot_measures, plain_measures = Measures(), Measures()
    hot = app_of(module_sales.services.gateway, hot_measures)
    assert isinstance(hot.first, HotPaths)
    hot.first._app = passed = Passed(hot.first._app)
    return Ways(
        hot=hot,
        plain=without_hot_paths(app_of(module_sales.services.gateway, plain_measures)),
        passed=passed,
        eve=await another_key(module_sales),
        etag=(await module_sales.http.get(ORDERS)).headers["etag"],
        hot_measures=hot_measures,
        plain_measures=plain_measures,
    )


@pytest.fixture
def key(module_sales: Gateway) -> str:
    return module_sales.acme.key.secret


async def test_every_path_with_every_method_is_answered_alike(ways: Ways, key: str) -> None:
    statuses = set()
    for path in PATHS:
        for method in METHODS:
            sent = Sent(method=method, path=path.encode("latin-1"), pieces=(NOTHING,))
            statuses.add((await ways.agree(sent, key)).status)
    assert statuses >= {200, 204, 400, 404, 405, 414}


async def test_every_query_is_answered_alike(ways: Ways, key: str) -> None:
    for query in QUERIES:
        for method in ("GET", "HEAD"):
            await ways.agree(Sent(method=method, query=query), key)
    found = [(await ways.agree(get(CONFIG, query), key)).status for query in CONFIG_QUERIES]
    assert set(found) == {200, 400, 404}


async def test_all_headers_are_answered_alike(ways: Ways, key: str) -> None:
    statuses = set()
    for headers in HEADERS:
        for method, path, query in (
            ("GET", ORDERS, b""),
            ("GET", ORDERS, b"snapshots=refs"),
            ("HEAD", ORDERS, b""),
            ("GET", f"{TABLES}/none", b""),
            ("GET", f"{TABLES}/%FF", b""),
            ("GET", CONFIG, b"warehouse=lake"),
            ("POST", ORDERS, b""),
        ):
            sent = Sent(method=method, path=path.encode(), query=query, headers=headers, pieces=(NOTHING,))
            statuses.add((await ways.agree(sent, key)).status)
    assert statuses >= {200, 204, 304, 400, 401, 403, 404, 415}


@pytest.mark.parametrize("sent", BODIES)
async def test_every_body_is_answered_alike(ways: Ways, key: str, sent: Sent) -> None:
    await ways.agree(sent, key)


@pytest.mark.parametrize("sent", SCOPES)
async def test_whatever_a_server_says_of_a_request_it_is_answered_alike(ways: Ways, key: str, sent: Sent) -> None:
    await ways.agree(sent, key)


async def test_mutations_are_measured_alike(ways: Ways, key: str) -> None:
    for sent in BODIES:
        await ways.agree(sent, key)

    def counts(measures: Measures) -> list[str]:
        lines = measures.text().splitlines()
        return [line for line in lines if "_total{" in line or "_count{" in line or "_in_flight" in line]

    assert counts(ways.hot_measures) == counts(ways.plain_measures) != []


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("a secret of the inside"),
        BrokenError(Fault.HEAD, where="ledger.heads", expected="what was", found="nothing"),
        LogUnavailableError("nothing was appended"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_fails_inside_is_answered_alike(module_sales: Gateway, key: str, error: Exception) -> None:
    class Failing(FreshReads):
        async def ask(self, question: Question) -> Fresh:  # noqa: ARG002 - whatever it is
            raise error

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        raise error

    parts = module_sales.services.gateway
    catalogs = replace(parts.catalogs, fresh=Failing("", parts.roles))
    failing = replace(parts, append=append, catalogs=catalogs)
    answers = []
    for app in (app_of(failing), without_hot_paths(app_of(failing))):
        for sent in (get(), post(json.dumps(properties(a="b")).encode())):
            try:
                answers.append(await ask(app, sent, key))
            except ZeroDivisionError:
                answers.append(await heard_before_the_end(app, sent, key))
    hot, plain = answers[:2], answers[2:]
    assert hot == plain
    assert hot[1].status in {500, 503}
    assert b"secret" not in hot[1].body


async def heard_before_the_end(app: FastAPI, sent: Sent, key: str) -> Heard:
    """The answer that is sent before an unexpected error goes on to the server."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"".join(sent.pieces), "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    with pytest.raises(ZeroDivisionError):
        await app(sent.scope(key), receive, send)
    return Heard(messages[0]["status"], without_id(messages[0]["headers"]), messages[1]["body"])


async def test_what_is_usual_goes_past_fastapi_and_nothing_else_does(ways: Ways, key: str) -> None:
    usual = (get(), get(query=b"snapshots=refs"), Sent(method="HEAD"), post(NOTHING), get(CONFIG, b"warehouse=lake"))
    for sent in (*usual, get(f"{TABLES}/a%2Fb"), Sent(headers=())):
        assert await ways.is_past(sent, key), str(sent)
    for sent in (
        Sent(method="DELETE", path=f"{TABLES}/none".encode()),
        get(TABLES),
        get("/health"),
        get(f"{ORDERS}/"),
        get("/v1/iceberg%2Flake/namespaces/sales/tables/orders"),
        Sent(method="HEAD", path=CONFIG.encode()),
        *SCOPES[:3],
        post(gzip.compress(NOTHING, mtime=0), headers=[(b"content-encoding", b"gzip")]),
    ):
        assert not await ways.is_past(sent, key), str(sent)
