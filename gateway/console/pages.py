# SPDX-License-Identifier: Apache-2.0
"""
The pages of the console, one function each, at `/console`.

A page asks the same functions that answer programs (`gateway/http`), with the visitor's own credentials, and shows what
they answer: what nobody may read over HTTP, nobody sees here. Every page works without script; the live tail of the log
is what needs it.

Who is not logged in is sent to the login (`logins.py`), and back to the page afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.commit.gateway import Gateway
from gateway.console.actor_names import names_by_entry, names_in
from gateway.console.entry_words import SAYS
from gateway.console.lists import FORMS, HISTORY, LISTS, PAGE, PAGES_MAX, ROWS_MAX, Answer, Listed, format_csv
from gateway.console.logins import (
    ADVICE,
    RENEWAL,
    TIME,
    check_same_actor,
    gateway_of,
    redirect,
    refused,
    session_of,
    to_login,
)
from gateway.console.overview import chart, needs, totals
from gateway.console.rendering import HEADERS, page, row_shown, static_file
from gateway.console.renewals import NotRenewedError
from gateway.console.terms import TERMS
from gateway.errors import ForbiddenError, GatewayError, NotFoundError, UnauthorizedError
from gateway.http import decision_routes, log_entry_routes, policy_routes, restriction_routes, tenant_routes
from gateway.http.error_answers import asks_for_page, gateway_error
from gateway.http.inner import Headers, ask, inner_request
from gateway.http.lineage_reading_routes import show_status
from gateway.http.log_routes import VIEW, receipt_answer
from gateway.http.looking.query import CURSOR, Query, parse_index
from gateway.http.looking.reading import Looking, reading_as, sight_of
from gateway.http.looking.shown import commit_shown
from gateway.http.request import check_access
from gateway.identity import Principal
from gateway.log_errors import unmapped_errors
from ledger.format.canonical import format_time
from ledger.format.checkpoint import parse_checkpoint
from ledger.format.encoding import format_base64
from ledger.format.note import parse_note
from ledger.format.proof import parse_proof
from ledger.proving.prove import growth_hashes
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.errors import ProjectionError
from projections.graph.display_names import key_of_table
from projections.relational.commits import read_last_refused
from projections.relational.finding_reviews import FindingState
from projections.relational.metrics import read_hours

router = APIRouter(prefix="/console", include_in_schema=False)

ENTRIES_A_PAGE: Final = 50
TABLES_A_PAGE: Final = 100
OVERVIEW: Final = timedelta(hours=24)
COUNTS_MAX: Final = 10_000
REFUSALS_SHOWN: Final = 10
OPEN_COUNTED: Final = 100
"""Open findings that the first page counts."""
NO_PAGE: Final = "Look at the address again, or go on from the first page."
CSV: Final = "text/csv; charset=utf-8; header=present"
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

    def asked_alone(self, *names: str) -> dict[str, str]:
        """
        Return what `asked` does, where the query must have nothing else: a filter that is not applied would show what
        was not asked for.

        Raises:
            BadRequestError: if it has another parameter, or one twice.
        """
        Query(self.request, *names)
        return self.asked(*names)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page with what every page shows."""
        made_at = format_time(self.gateway.clock())
        shown = {"who": _name_of(self.caller), "path": self.request.url.path, "made_at": made_at}
        return page(template, status, **shown, **values)


def visited(show: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Let a page be seen by whoever is logged in; errors become a page, too."""

    async def answer(request: Request) -> Response:
        who = None
        try:
            with unmapped_errors():
                session = await session_of(request)
                if session is None:
                    return to_login(request)
                credentials = session.credentials
                caller = await gateway_of(request).authenticator.authenticate(credentials)
                await check_same_actor(request, session, caller)
                request.state.caller = caller  # who asks the routes behind the page: known for this request
                who = _name_of(caller)
                visit = Visit(request=request, gateway=gateway_of(request), credentials=credentials, caller=caller)
                return await show(visit, **request.path_params)
        except UnauthorizedError as error:
            return to_login(request, why=RENEWAL if isinstance(error, NotRenewedError) else TIME)
        except GatewayError as error:
            if _is_for_programs(request):
                answered = await gateway_error(request, error)
                answered.headers.update(HEADERS)
                return answered
            return refused(request, error, who)

    answer.__name__, answer.__doc__ = show.__name__, show.__doc__
    return answer


def _is_for_programs(request: Request) -> bool:
    """Return whether a program asks for the twin of a list, and no browser that shows it."""
    return request.scope["route"].path.endswith(".{form}") and not asks_for_page(request)


async def error_page(request: Request, status: int, message: str) -> Response:
    """
    Return the page of an error that no page has answered: an address without a page, a method that it does not take.
    """
    advice = ADVICE.get(status, ADVICE[503]) if status != 404 else NO_PAGE
    who = await _who(request)
    return page("refused.html", status, message=message, advice=advice, plain="", who=who, path=request.url.path)


async def _who(request: Request) -> str | None:
    """Return who is logged in; None if nobody is, or if that cannot be told now."""
    try:
        with unmapped_errors():
            if (session := await session_of(request)) is None:
                return None
            return _name_of(await gateway_of(request).authenticator.authenticate(session.credentials))
    except GatewayError:
        return None


@router.get("")
@visited
async def overview(visit: Visit) -> Response:
    """Show what needs somebody now, what was decided in the last day, and how far all is that follows the log."""
    await check_access(visit.gateway, visit.caller, visit.request, VIEW)
    now = visit.gateway.clock()
    looking = await visit.looking()
    async with looking.reading() as connection:
        counts = await read_hours(connection, visit.caller.log_id, since=now - OVERVIEW, limit=COUNTS_MAX)
        refusals = await _last_refusals(looking, connection)
    status = await visit.read(show_status)
    findings = await visit.read(decision_routes.list_findings, state=FindingState.OPEN.value, limit=OPEN_COUNTED)
    return visit.page(
        "overview.html",
        log=status,
        needs=needs(
            status,
            findings=findings["findings"],
            more_findings=findings[CURSOR] is not None,
            drafts={
                "policies": await _ids(visit, policy_routes.list_policy_drafts, "policy-drafts"),
                "restrictions": await _ids(visit, restriction_routes.list_restriction_drafts, "restriction-drafts"),
            },
        ),
        refusals=refusals,
        totals=totals(counts),
        chart=chart(counts, until=now),
        is_cut=len(counts) == COUNTS_MAX,
    )


@router.get("/log")
@visited
async def log(visit: Visit) -> Response:
    """Show the newest entries of the log, or those that are asked for: of a table also by its name."""
    asked, _ = _asked_of(visit, LISTS["log"])
    if asked["key"] and ":" not in asked["key"]:
        with suppress(ProjectionError):  # no name of a table: the route says what it expects
            given = {**visit.request.query_params, "key": key_of_table(asked["key"])}
            return redirect(f"{visit.request.scope['path']}?{urlencode(given)}")
    found = await _found(visit, LISTS["log"], limit=ENTRIES_A_PAGE)
    return visit.page("log.html", **found, says=SAYS, names=await names_in(visit, found["entries"]))


@router.get("/log/follow")
@visited
async def follow(visit: Visit) -> Response:
    """Answer with what comes, as server-sent events: for the script of the log's page."""
    last = visit.request.headers.get("last-event-id", "")
    headers = [*visit.headers, *([(b"last-event-id", last.encode("latin-1"))] if last else [])]
    asked = visit.asked("type", "key", "actor", "from")
    return await log_entry_routes.followed(inner_request(visit.request, asked, headers=headers), row_shown)


@router.get("/log/{index}")
@visited
async def entry(visit: Visit, index: str) -> Response:
    """Show one entry: what it says, its bytes, its place, and what belongs to it."""
    found = await visit.read(log_entry_routes.show_entry, index)
    return visit.page(
        "entry.html",
        entry=found,
        names=await names_by_entry(visit, {found["actor"]: found["index"]}),
        data=orjson.dumps(found["data"], option=orjson.OPT_INDENT_2).decode(),
    )


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
    return await _list(visit, "tables.html", LISTS["tables"], limit=TABLES_A_PAGE)


@router.get(f"{TABLE}/commits.{{form}}")
@visited
async def table_commits(visit: Visit, alias: str, namespace: str, table: str, form: str) -> Response:
    """Answer with the commits of a table, for programs and spreadsheets."""
    return await answer_list(visit, HISTORY, "commits", form, alias, namespace, table)


@router.get("/findings")
@visited
async def findings(visit: Visit) -> Response:
    """List what scans have found, the newest first."""
    return await _list(visit, "findings.html", LISTS["findings"], limit=TABLES_A_PAGE)


@router.get("/terms")
@visited
async def terms(visit: Visit) -> Response:
    """Say what the words of the console mean."""
    return visit.page("terms.html", terms=TERMS)


@router.get("/{name}.{form}")
@visited
async def listed(visit: Visit, name: str, form: str) -> Response:
    """Answer with a list, for programs and spreadsheets."""
    if name not in LISTS:
        raise NotFoundError(f"{name:.100}: expected one of the lists {', '.join(LISTS)}", kind="NotFoundException")
    return await answer_list(visit, LISTS[name], name, form)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Answer with a file that pages load."""
    found = static_file(name)
    if found is None:
        message = "There is no such file."
        return page("refused.html", 404, message=message, advice=NO_PAGE, plain="", who=None, path="")
    return found


async def _last_refusals(looking: Looking, connection: Connection) -> list[dict[str, Any]]:
    """Return the last commits that were refused, of what the visitor may see, the newest first."""
    found = await read_last_refused(connection, looking.caller.log_id, limit=REFUSALS_SHOWN)
    await looking.sight.prepare(each.key for each in found)
    with_principal = await looking.sight.reads_inputs()
    return [commit_shown(each, with_principal=with_principal) for each in found if await looking.sight.sees(each.key)]


async def waiting_drafts(visit: Visit, list_drafts: Answer, member: str) -> Sequence[Mapping[str, Any]]:
    """Return the drafts that wait for a review, as a route shows them under `member`; none to whom may not see any."""
    try:
        found: Sequence[Mapping[str, Any]] = (await visit.read(list_drafts))[member]
    except ForbiddenError:
        return []  # drafts are a right of their own
    return found


async def _ids(visit: Visit, list_drafts: Answer, member: str) -> list[str]:
    return [each["id"] for each in await waiting_drafts(visit, list_drafts, member)]


def _name_of(caller: Principal) -> str:
    return caller.email or caller.sub


async def _proof(visit: Visit, index: str) -> tuple[Log, Response]:
    """Return the log of an entry that the visitor may see, and the file that proves the entry."""
    at, looking = parse_index(index, field="index"), await visit.looking()
    async with looking.reading() as connection:
        log = (await log_entry_routes.find_entry(looking, connection, at)).log
    return log, await receipt_answer(visit.gateway, visit.caller, log.origin, at)


async def _list(visit: Visit, template: str, listed: Listed, *, limit: int) -> Response:
    """Show a list that a route answers page by page, as the page's own query asks for it."""
    return visit.page(template, **await _found(visit, listed, limit=limit))


async def _found(visit: Visit, listed: Listed, *, limit: int) -> dict[str, Any]:
    """Return what the page of a list shows, as its own query asks for it."""
    asked, cursor = _asked_of(visit, listed)
    found = await visit.read(listed.answer, limit=limit, cursor=cursor, **asked)
    more, twins = more_of(visit, found[CURSOR], asked), twins_of(visit.request.scope["path"], asked)
    return {**found, "asked": asked, "is_first": not cursor, "more": more, "twins": twins}


async def answer_list(visit: Visit, listed: Listed, name: str, form: str, *names: str) -> Response:
    """
    Answer with a list as `form` (json or csv), as the query asks for it.

    Raises:
        NotFoundError: if there is no such form.
    """
    asked, cursor = _asked_of(visit, listed)
    in_pages = {"limit": PAGE, **asked} if listed.in_pages else asked
    if form == "json":
        found = await visit.read(listed.answer, *names, **in_pages, **({CURSOR: cursor} if cursor else {}))
        return JSONResponse(found, headers=HEADERS)
    if form != "csv":
        raise NotFoundError(f"{name}.{form}: expected json or csv", kind="NotFoundException")
    rows: list[Any] = []
    following: str | None = cursor
    for _ in range(PAGES_MAX):
        found = await visit.read(listed.answer, *names, **in_pages, **({CURSOR: following} if following else {}))
        rows += listed.rows(found)
        following = found.get(CURSOR)
        if following is None or len(rows) + PAGE > ROWS_MAX:
            break
    more = more_of(visit, following, asked)
    is_part = more is not None or bool(found.get("has_more"))
    file = f"{name}{'.part' if is_part else ''}.csv"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{file}"'}
    if more is not None:
        headers["Link"] = f'<{more}>; rel="next"'
    return Response(format_csv(listed.columns, rows), media_type=CSV, headers=headers)


def _asked_of(visit: Visit, listed: Listed) -> tuple[dict[str, str], str]:
    """Return the filters that a list is asked for with, and its cursor. Raises as `Visit.asked_alone`."""
    asked = visit.asked_alone(*listed.filters, *((CURSOR,) if listed.in_pages else ()))
    cursor = asked.pop(CURSOR, "")
    return asked, cursor


def more_of(visit: Visit, cursor: str | None, asked: dict[str, str]) -> str | None:
    """Return the path of the page that continues a list; None at its end."""
    if cursor is None:
        return None
    given = {name: value for name, value in asked.items() if value}
    return f"{visit.request.scope['path']}?{urlencode({**given, CURSOR: cursor})}"


def twins_of(path: str, asked: Mapping[str, str]) -> dict[str, str]:
    """Return where a list that is asked for so is JSON, and CSV."""
    query = urlencode({name: value for name, value in asked.items() if value})
    return {form: f"{path}.{form}{'?' if query else ''}{query}" for form in FORMS}
