# SPDX-License-Identifier: Apache-2.0
"""
How a browser gets a session of the console, and how it ends: an API key, an identity provider, a link that counts once.

What is shown is verified by the authenticator, as a program's credentials are: the key, or the access token of the
provider. A session ends when that does, unless the provider renews the token (`renewals.py`). A provider's answer is
taken once, and only in the browser that began the login (`identity/code_logins.py`). A link is opened on this machine
alone, and logs in with a button: what looks at links before people do spends none.

A request that changes something comes by POST from a page of the console itself: its Origin (or Sec-Fetch-Site) must
say so, and the cookie is sent with no other (SameSite).
"""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from gateway.commit.gateway import Gateway
from gateway.console.one_time import LINK_PATH, one_time_of
from gateway.console.rendering import HEADERS, page
from gateway.console.renewals import REFUSED, NotRenewedError, Renewals
from gateway.console.sessions import LIFETIME, Session, Sessions
from gateway.errors import (
    BadRequestError,
    ForbiddenError,
    GatewayError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from gateway.http.request import body_of, has_own_origin, is_from_this_machine
from gateway.identity import Principal
from gateway.identity.code_logins import ATTEMPT_LIFETIME, SECRET_SIZE_BYTES, CodeLogins, NotBegunError

router = APIRouter(prefix="/console", include_in_schema=False)

COOKIE: Final = "lakeproof_console"
ATTEMPT_COOKIE: Final = "lakeproof_login"
"""What a browser keeps of a login at a provider until it comes back."""
FORM_SIZE_BYTES_MAX: Final = 16 * 1024
FORM_FIELDS_MAX: Final = 30
TARGET_LENGTH_MAX: Final = 2_048
OVER_TLS_ALONE: Final = "max-age=2592000"
"""For 30 days after a login page a browser reaches this host over TLS alone (RFC 6797), also where a link says http."""
UNKNOWN_KEY: Final = "This key is not known, or no longer in force."
ENDED: Final = "Your session has ended: its key was revoked, or its time is over. Log in again."
TIME, RENEWAL = "1", "renewal"
"""Why a session has ended, as the address of the login says it."""
_ENDED: Final = {TIME: ENDED, RENEWAL: REFUSED}
LINK_USED: Final = (
    "This link was used already, or is older than ten minutes. Make another one on the machine of the gateway: "
    "lakeproof console login"
)
LINK_ELSEWHERE: Final = (
    "a login link is opened in a browser on the gateway's own machine, at the address in the link and through no "
    "proxy: open it there, or log in with an API key"
)
_TO_THE_OPERATOR: Final = "If it stays so, ask whoever runs this gateway."
ADVICE: Final = {
    400: "Correct it in the address or the form, and send it again.",
    403: "Access rules decide who may see what: ask whoever writes those of your tenant.",
    404: "It may have another name, or you may not see it: ask whoever writes your tenant's access rules.",
    405: "Open the page by its link, and send its form from there.",
    409: "Somebody was faster. Open the page again, and look at what it says now.",
    413: "Send less at once.",
    414: "Ask for less, or follow a link of the console.",
    415: "Send the form from the page itself.",
    422: "Correct it, and send it again.",
    429: "Try again in a second.",
    500: f"Try again. {_TO_THE_OPERATOR}",
    502: "Look at what the catalog has now before you send it again.",
    503: f"Try again in a minute. {_TO_THE_OPERATOR}",
    504: "Look at what the catalog has now before you send it again.",
}
"""What to do about an error, by its status, where the error itself does not say it."""


@router.get("/login")
async def login_form(request: Request) -> Response:
    """Show the login."""
    query = request.query_params
    return _login_page(request, query.get("to", ""), _ENDED.get(query.get("ended", ""), ""), status=200)


@router.post("/login")
async def login(request: Request) -> Response:
    """Begin a session with an API key, and go on to the page that was asked for."""
    try:
        form = await form_of(request)
        key = form.get("key", "").strip()
        if not key:
            return _login_page(request, form.get("to", ""), "Enter an API key.")
        return await _begun(request, f"Bearer {key}", to=form.get("to", ""))
    except UnauthorizedError:
        await gateway_of(request).refusals.unauthenticated("POST /console/login")
        return _login_page(request, form.get("to", ""), UNKNOWN_KEY)
    except GatewayError as error:
        return refused(request, error)


@router.post("/logout")
async def logout(request: Request) -> Response:
    """End the session, and show the login."""
    try:
        await form_of(request)
        await renewals_of(request).end(request.cookies.get(cookie_name(request), ""))
    except GatewayError as error:
        return refused(request, error)
    answer = redirect("/console/login")
    answer.delete_cookie(cookie_name(request), path="/", secure=_is_secure(request))
    return answer


@router.get("/login/at/{name}")
async def begin_login(request: Request, name: str) -> Response:
    """Send the browser to an identity provider; it comes back to `finish_login`."""
    try:
        codes, gateway = _codes(request), gateway_of(request)
        to = own_path(request.query_params.get("to", ""))
        begun = await codes.begin(name, to=to, secret=gateway.random(SECRET_SIZE_BYTES))
    except GatewayError as error:
        return refused(request, error)
    answer = redirect(begun.url)
    answer.set_cookie(
        cookie_name(request, ATTEMPT_COOKIE),
        begun.kept,
        max_age=int(ATTEMPT_LIFETIME.total_seconds()),
        path="/",
        secure=_is_secure(request) or urlsplit(codes.places[name]).scheme == "https",
        httponly=True,
        samesite="lax",  # the provider's page leads back here
    )
    return answer


@router.get("/login/at/{name}/answer")
async def finish_login(request: Request, name: str) -> Response:
    """Begin a session for whom the identity provider says that it is, and go on to the page that was asked for."""
    kept = request.cookies.get(cookie_name(request, ATTEMPT_COOKIE), "")
    try:
        answer = await _finished(request, name, kept)
    except UnauthorizedError as error:
        await gateway_of(request).refusals.unauthenticated("GET /console/login/at")
        answer = _login_page(request, "", _sentence(error))
        if isinstance(error, NotBegunError):
            return answer  # another site may have sent the browser here: the login that it began still counts
    except GatewayError as error:
        answer = refused(request, error)
    answer.delete_cookie(cookie_name(request, ATTEMPT_COOKIE), path="/", secure=_is_secure(request))
    return answer


@router.get("/login/link")
async def show_link(request: Request) -> Response:
    """Show the button that a link logs in with."""
    try:
        _check_at_the_machine(request)
    except GatewayError as error:
        return refused(request, error)
    return page("link.html", once=request.query_params.get("once", ""), place=LINK_PATH, who=None, path="")


@router.post("/login/link")
async def use_link(request: Request) -> Response:
    """Begin a session with what a link holds."""
    try:
        _check_at_the_machine(request)
        form = await form_of(request)
        credentials = await one_time_of(gateway_of(request)).take_link(form.get("once", ""))
        if credentials is None:
            return _login_page(request, "", LINK_USED)
        return await _begun(request, credentials, to="")
    except UnauthorizedError:
        return _login_page(request, "", "The key of this link is no longer in force. Make another link.")
    except GatewayError as error:
        return refused(request, error)


def gateway_of(request: Request) -> Gateway:
    """Return the parts of the gateway."""
    gateway: Gateway = request.app.state.gateway
    return gateway


def sessions_of(request: Request) -> Sessions:
    """Return the sessions of the console."""
    gateway = gateway_of(request)
    return Sessions(gateway.database, gateway.roles.gateway, clock=gateway.clock, random=gateway.random)


def renewals_of(request: Request) -> Renewals:
    """Return what renews the sessions of the console, and ends them."""
    gateway = gateway_of(request)
    return Renewals(sessions_of(request), gateway.authenticator.tokens, clock=gateway.clock)


async def session_of(request: Request) -> Session | None:
    """Return the session of a request, renewed if need be; None if it has none. Raises as `Renewals.find`."""
    return await renewals_of(request).find(request.cookies.get(cookie_name(request), ""))


async def check_same_actor(request: Request, session: Session, caller: Principal) -> None:
    """
    Check that a session that can be renewed is still that of its actor, whose identity may have been erased.

    Raises:
        NotRenewedError: if it is not: it has ended.
    """
    if session.renewable is not None and caller.actor != session.renewable.actor:
        await renewals_of(request).end(request.cookies.get(cookie_name(request), ""))
        raise NotRenewedError


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


def cookie_name(request: Request, name: str = COOKIE) -> str:
    """Behind TLS a cookie that no other host and no plain connection can have set (RFC 6265bis, `__Host-`)."""
    return f"__Host-{name}" if _is_secure(request) else name


def to_login(request: Request, *, why: str = TIME) -> Response:
    """Send a browser to the login, and back to the page afterwards; who had a session is told why it has ended."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    to = f"to={quote(asked, safe='')}" if request.method == "GET" else ""
    ended = f"ended={why}" if cookie_name(request) in request.cookies else ""
    query = "&".join(filter(None, (to, ended)))
    return redirect(f"/console/login?{query}" if query else "/console/login")


def redirect(path: str) -> Response:
    """Return the answer that leads to another page."""
    return RedirectResponse(path, status_code=303, headers=HEADERS)


def own_path(path: str) -> str:
    """Return a path of the console, or its first page: a link to the login cannot lead anywhere else."""
    is_own = path == "/console" or path.startswith(("/console/", "/console?"))
    return path if is_own and len(path) <= TARGET_LENGTH_MAX and path.isprintable() and "\\" not in path else "/console"


def refused(request: Request, error: GatewayError, who: str | None = None) -> Response:
    """Return the page that says why something cannot be shown."""
    path, advice = request.url.path, ADVICE.get(error.status, ADVICE[503])
    plain = path if request.method == "GET" and request.url.query else ""
    answer = page("refused.html", error.status, message=str(error), advice=advice, plain=plain, who=who, path=path)
    if isinstance(error, UnavailableError):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer


async def _begun(request: Request, credentials: str, *, to: str, refresh_token: str | None = None) -> Response:
    """Begin a session with credentials, once they are verified. Raises as `Authenticator.authenticate`."""
    caller = await gateway_of(request).authenticator.authenticate(credentials)
    cookie = await sessions_of(request).begin(
        credentials, ends_at=caller.ends_at, actor=caller.actor, refresh_token=refresh_token
    )
    answer = redirect(own_path(to))
    answer.set_cookie(
        cookie_name(request),
        cookie,
        max_age=int(LIFETIME.total_seconds()),
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="lax",
    )
    return answer


async def _finished(request: Request, name: str, kept: str) -> Response:
    """
    Begin a session with the access token of a login that has ended well. Raises as `CodeLogins.finish`, and if the
    token is refused, or the login was finished before.
    """
    given = request.query_params
    if len(given.multi_items()) != len(given):
        raise NotBegunError  # the first of two may say something else than the last
    finished = await _codes(request).finish(name, dict(given), kept=kept)
    attempt = finished.attempt
    until = datetime.fromtimestamp(attempt.began_s, tz=UTC) + ATTEMPT_LIFETIME
    if not await one_time_of(gateway_of(request)).spend(attempt.secret, until=until):
        raise NotBegunError
    bearer = f"Bearer {finished.access_token}"
    return await _begun(request, bearer, to=attempt.to, refresh_token=finished.refresh_token)


def _codes(request: Request) -> CodeLogins:
    """Return the logins at identity providers. Raises NotFoundError if none is configured."""
    tokens = gateway_of(request).authenticator.tokens
    if tokens is None:
        raise NotFoundError("expected a login that the operator has configured", kind="NotFoundException")
    return tokens.codes


def _check_own(request: Request) -> None:
    """Check that a page of this site has sent a request (Fetch Metadata; RFC 6454 where a browser lacks that)."""
    site = request.headers.get("sec-fetch-site")
    is_own = has_own_origin(request) if site is None else site == "same-origin"
    if not is_own:
        raise ForbiddenError(
            "expected a form of this site, found one of another: open the console, and try again there"
        )


def _check_at_the_machine(request: Request) -> None:
    """
    Check that a request comes from this machine, and asked for it by its loopback address: a proxy without the usual
    headers, or a page of a name that leads here (DNS rebinding), asks for another host.
    """
    if not _is_loopback(_host_of(request)) or not is_from_this_machine(request):
        raise ForbiddenError(LINK_ELSEWHERE)


def _is_secure(request: Request) -> bool:
    """Whether a browser came over TLS: to us, or to a proxy that the operator has named."""
    return request.url.scheme == "https"


def _host_of(request: Request) -> str:
    """The host that a browser has asked for; empty if it is none."""
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _login_page(request: Request, to: str, problem: str = "", *, status: int = 401) -> Response:
    tokens = gateway_of(request).authenticator.tokens
    to = own_path(to)
    places = {} if tokens is None else tokens.codes.places
    links = [(name, f"{place}?{urlencode({'to': to})}") for name, place in places.items()]
    answer = page("login.html", status if problem else 200, to=to, problem=problem, providers=links, who=None, path="")
    if _is_secure(request) and not _is_loopback(_host_of(request)):  # a name of this machine serves others, too
        answer.headers["Strict-Transport-Security"] = OVER_TLS_ALONE
    return answer


def _sentence(error: GatewayError) -> str:
    """Return an error as a sentence of a page."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
