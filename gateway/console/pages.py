# SPDX-License-Identifier: Apache-2.0
"""
The pages of the console, one function each, at `/console`.

A page asks the same functions that answer programs (`gateway/http`), with the visitor's own credentials, and shows what
they answer: what nobody may read over HTTP, nobody sees here. Every page works without script; the live tail of the log
is what needs it.

Who is not logged in is sent to the login, and back to the page afterwards. A request that changes something comes by
POST from a page of the console itself: its Origin (or Sec-Fetch-Site) must say so, and the cookie is sent with no other
(SameSite).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from gateway.commit.gateway import Gateway
from gateway.console.overview import chart, totals
from gateway.console.rendering import HEADERS, page, static_file
from gateway.console.sessions import LIFETIME, Sessions
from gateway.errors import BadRequestError, ForbiddenError, GatewayError, UnauthorizedError
from gateway.http import decision_routes, log_entry_routes, table_routes, tenant_routes
from gateway.http.inner import Headers, ask, inner_request
from gateway.http.lineage_reading_routes import show_status
from gateway.http.log_routes import VIEW, receipt_answer
from gateway.http.looking.query import CURSOR, parse_index
from gateway.http.looking.reading import Looking, reading_as, sight_of
from gateway.http.request import body_of, check_access, has_own_origin
from gateway.identity import Principal
from gateway.log_errors import unmapped_errors
from ledger.format.checkpoint import parse_checkpoint
from ledger.format.encoding import format_base64
from ledger.format.note import parse_note
from ledger.format.proof import parse_proof
from ledger.proving.prove import growth_hashes
from ledger.store.read import Log
from projections.relational.metrics import read_hours

router = APIRouter(prefix="/console", include_in_schema=False)

COOKIE: Final = "lakeproof_console"
FORM_SIZE_BYTES_MAX: Final = 16 * 1024
FORM_FIELDS_MAX: Final = 30
ENTRIES_A_PAGE: Final = 50
TABLES_A_PAGE: Final = 100
OVERVIEW: Final = timedelta(hours=24)
COUNTS_MAX: Final = 10_000
TARGET_LENGTH_MAX: Final = 2_048
TABLE: Final = "/tables/{alias}/{namespace}/{table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page: by whom, with which credentials, and what is behind it."""

    request: Request
    gateway: Gateway
    credentials: str
    caller: Principal

    async def read(self, answer: Callable[..., Awaitable[Response]], *names: str, **query: object) -> Any:
        """Return what a route of the gateway answers the visitor, as JSON. Raises as the route does."""
        return await ask(self.request, answer, *names, query=query, headers=self.headers)

    async def send(
        self, answer: Callable[..., Awaitable[Response]], *names: str, body: object = None, **query: object
    ) -> Any:
        """Have a route of the gateway do something for the visitor, and return its answer. Raises as the route does."""
        return await ask(self.request, answer, *names, query=query, headers=self.headers, body=body)

    @property
    def headers(self) -> Headers:
        """The visitor's credentials, as programs send them."""
        return [(b"authorization", self.credentials.encode("latin-1"))]

    async def looking(self) -> Looking:
        """Return what the visitor may see, for what no route of programs answers."""
        sight = await sight_of(self.gateway, self.caller, self.request)
        return Looking(gateway=self.gateway, caller=self.caller, sight=sight)

    def asked(self, *names: str) -> dict[str, str]:
        """Return parameters of the page's own query; those that were not given are empty."""
        return {name: self.request.query_params.get(name, "").strip() for name in names}

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page with what every page shows."""
        return page(template, status, who=_name_of(self.caller), path=self.request.url.path, **values)


def visited(show: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Let a page be seen by whoever is logged in; errors become a page, too."""

    async def answer(request: Request) -> Response:
        who = None
        try:
            with unmapped_errors():
                credentials = await _sessions(request).credentials(request.cookies.get(_cookie_name(request), ""))
                if credentials is None:
                    return _to_login(request)
                caller = await _gateway(request).authenticator.authenticate(credentials)
                request.state.caller = caller  # who asks the routes behind the page: known for this request
                who = _name_of(caller)
                visit = Visit(request=request, gateway=_gateway(request), credentials=credentials, caller=caller)
                return await show(visit, **request.path_params)
        except UnauthorizedError:
            return _to_login(request)
        except GatewayError as error:
            return _refused(request, error, who)

    answer.__name__, answer.__doc__ = show.__name__, show.__doc__
    return answer


@router.get("")
@visited
async def overview(visit: Visit) -> Response:
    """Show what was decided in the last day, and what lags behind."""
    await check_access(visit.gateway, visit.caller, visit.request, VIEW)
    now = visit.gateway.clock()
    async with reading_as(visit.gateway, visit.caller) as connection:
        counts = await read_hours(connection, visit.caller.log_id, since=now - OVERVIEW, limit=COUNTS_MAX)
    return visit.page(
        "overview.html",
        log=await visit.read(show_status),
        totals=totals(counts),
        chart=chart(counts, until=now),
        is_cut=len(counts) == COUNTS_MAX,
    )


@router.get("/log")
@visited
async def log(visit: Visit) -> Response:
    """Show the newest entries of the log, or those that are asked for."""
    filters = ("type", "key", "actor", "after", "before")
    return await _list(visit, "log.html", log_entry_routes.list_entries, *filters, limit=ENTRIES_A_PAGE)


@router.get("/log/follow")
@visited
async def follow(visit: Visit) -> Response:
    """Answer with what comes, as server-sent events: for the script of the log's page."""
    last = visit.request.headers.get("last-event-id", "")
    headers = [*visit.headers, *([(b"last-event-id", last.encode("latin-1"))] if last else [])]
    asked = visit.asked("type", "key", "actor")
    return await log_entry_routes.follow_log(inner_request(visit.request, asked, headers=headers))


@router.get("/log/{index}")
@visited
async def entry(visit: Visit, index: str) -> Response:
    """Show one entry: what it says, its bytes, its place, and what belongs to it."""
    found = await visit.read(log_entry_routes.show_entry, index)
    return visit.page("entry.html", entry=found, data=orjson.dumps(found["data"], option=orjson.OPT_INDENT_2).decode())


@router.get("/log/{index}/proof")
@visited
async def proof(visit: Visit, index: str) -> Response:
    """Answer with the proof of an entry as a file."""
    _, answer = await _proof(visit, index)
    answer.headers["Content-Disposition"] = f'attachment; filename="{index}.tlog-proof"'
    return answer


@router.get("/log/{index}/check")
@visited
async def check(visit: Visit, index: str) -> Response:
    """
    Answer with what the script of an entry's page checks: the proof of the entry, the keys that may have signed it, and
    the proof that the log has only grown since it had `seen` entries.
    """
    seen = parse_index(visit.asked("seen")["seen"] or "0", field="seen")
    log, answer = await _proof(visit, index)
    file = bytes(answer.body)
    size = parse_checkpoint(parse_note(parse_proof(file).checkpoint)[0]).size
    growth: list[bytes] = []
    if 0 < seen <= size:
        async with reading_as(visit.gateway, visit.caller) as connection:
            growth = await growth_hashes(connection, log, seen, size)
    return JSONResponse(
        {
            "proof": format_base64(file),
            "keys": [key.format() for key in visit.gateway.receipts.keys_for(log.origin, size)],
            "growth": [format_base64(each) for each in growth],
        },
        headers=HEADERS,
    )


@router.get("/decisions/{decision}")
@visited
async def decision(visit: Visit, decision: str) -> Response:
    """Explain a decision: on what it was judged, how each rule came to its verdict, and what came of it."""
    decided = await visit.read(decision_routes.show_decision, decision)
    try:
        explained = await visit.read(tenant_routes.explain_decision, decision)
    except ForbiddenError:
        explained = None  # what it was judged on is a right of its own
    return visit.page("decision.html", decided=decided, explained=explained)


@router.get("/tables")
@visited
async def tables(visit: Visit) -> Response:
    """List tables by name, or with findings."""
    filters = ("name", "finding", "tag", "owner", "catalog")
    return await _list(visit, "tables.html", table_routes.list_tables, *filters, limit=TABLES_A_PAGE)


@router.get("/findings")
@visited
async def findings(visit: Visit) -> Response:
    """List what scans have found, the newest first."""
    filters = ("table", "kind", "confidence", "state")
    return await _list(visit, "findings.html", decision_routes.list_findings, *filters, limit=TABLES_A_PAGE)


@router.get("/login")
async def login_form(request: Request) -> Response:
    """Show the login."""
    return _login_page(request.query_params.get("to", ""))


@router.post("/login")
async def login(request: Request) -> Response:
    """Begin a session with an API key, and go on to the page that was asked for."""
    try:
        form = await form_of(request)
        key = form.get("key", "").strip()
        if not key:
            return _login_page(form.get("to", ""), "Enter an API key.")
        credentials = f"Bearer {key}"
        await _gateway(request).authenticator.authenticate(credentials)
        cookie = await _sessions(request).begin(credentials)
    except UnauthorizedError:
        await _gateway(request).refusals.unauthenticated("POST /console/login")
        return _login_page(form.get("to", ""), "This key is not known, or no longer in force.")
    except GatewayError as error:
        return _refused(request, error)
    answer = redirect(_own_path(form.get("to", "")))
    _set_cookie(request, answer, cookie)
    return answer


@router.post("/logout")
async def logout(request: Request) -> Response:
    """End the session, and show the login."""
    try:
        await form_of(request)
        await _sessions(request).end(request.cookies.get(_cookie_name(request), ""))
    except GatewayError as error:
        return _refused(request, error)
    answer = redirect("/console/login")
    answer.delete_cookie(_cookie_name(request), path="/")
    return answer


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Answer with a file that pages load."""
    found = static_file(name)
    return page("refused.html", 404, message="There is no such file.", who=None, path="") if found is None else found


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _sessions(request: Request) -> Sessions:
    gateway = _gateway(request)
    return Sessions(gateway.database, gateway.roles.gateway, clock=gateway.clock, random=gateway.random)


async def form_of(request: Request, *, size_bytes_max: int = FORM_SIZE_BYTES_MAX) -> dict[str, str]:
    """
    Return the fields of a form that a page of the console has sent.

    Raises:
        ForbiddenError: if another site has sent it, or nobody says who.
        BadRequestError: if it is no form.
    """
    _check_own(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise BadRequestError("expected a form (application/x-www-form-urlencoded)", field="content-type")
    body = await body_of(request, size_bytes_max=size_bytes_max)
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
    except ValueError as error:
        raise BadRequestError(f"expected a form of at most {FORM_FIELDS_MAX} fields", field="body") from error


def _check_own(request: Request) -> None:
    """Check that a page of this site has sent a request (Fetch Metadata; RFC 6454 where a browser lacks that)."""
    site = request.headers.get("sec-fetch-site")
    is_own = has_own_origin(request) if site is None else site == "same-origin"
    if not is_own:
        raise ForbiddenError(
            "expected a form of this site, found one of another: open the console, and try again there"
        )


def _cookie_name(request: Request) -> str:
    """Behind TLS a cookie that no other host and no plain connection can have set (RFC 6265bis, `__Host-`)."""
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE


def _set_cookie(request: Request, answer: Response, cookie: str) -> None:
    answer.set_cookie(
        _cookie_name(request),
        cookie,
        max_age=int(LIFETIME.total_seconds()),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def _to_login(request: Request) -> Response:
    if request.method != "GET":
        return redirect("/console/login")
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return redirect(f"/console/login?to={quote(asked, safe='')}")


def redirect(path: str) -> Response:
    return RedirectResponse(path, status_code=303, headers=HEADERS)


def _own_path(path: str) -> str:
    """Return a path of the console, or its first page: a link to the login cannot lead anywhere else."""
    is_own = path == "/console" or path.startswith(("/console/", "/console?"))
    return path if is_own and len(path) <= TARGET_LENGTH_MAX and path.isprintable() and "\\" not in path else "/console"


def _login_page(to: str, problem: str = "") -> Response:
    return page("login.html", 401 if problem else 200, to=_own_path(to), problem=problem, who=None, path="")


def _refused(request: Request, error: GatewayError, who: str | None = None) -> Response:
    return page("refused.html", error.status, message=str(error), who=who, path=request.url.path)


def _name_of(caller: Principal) -> str:
    return caller.email or caller.sub


async def _proof(visit: Visit, index: str) -> tuple[Log, Response]:
    """Return the log of an entry that the visitor may see, and the file that proves the entry."""
    at, looking = parse_index(index, field="index"), await visit.looking()
    async with looking.reading() as connection:
        log = (await log_entry_routes.find_entry(looking, connection, at)).log
    return log, await receipt_answer(visit.gateway, visit.caller, log.origin, at)


async def _list(
    visit: Visit, template: str, answer: Callable[..., Awaitable[Response]], *filters: str, limit: int
) -> Response:
    """Show a list that a route answers page by page, by `filters` of the page's own query."""
    asked, cursor = visit.asked(*filters), visit.asked(CURSOR)[CURSOR]
    found = await visit.read(answer, limit=limit, cursor=cursor, **asked)
    more = more_of(visit, found[CURSOR], asked)
    return visit.page(template, **found, asked=asked, is_first=not cursor, more=more)


def more_of(visit: Visit, cursor: str | None, asked: dict[str, str]) -> str | None:
    """Return the path of the page that continues a list; None at its end."""
    if cursor is None:
        return None
    given = {name: value for name, value in asked.items() if value}
    return f"{visit.request.scope['path']}?{urlencode({**given, CURSOR: cursor})}"
