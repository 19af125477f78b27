# SPDX-License-Identifier: Apache-2.0
"""
A request and an answer as the catalog's routes see them, made of ASGI's own values and nothing else.

The routes' work costs less than what a framework does around it, so the most frequent requests come here directly
(`hot_paths.py`); all others come through FastAPI. Both make an `Asked` and call the same functions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Measures
from gateway.errors import BadRequestError
from gateway.http.server.connection import CLIENT_CERTIFICATE, PEER
from gateway.identity import Credentials
from gateway.identity.certificate_logins import Certified
from gateway.identity.passed_certificates import CLIENT_CERT, CLIENT_CERT_CHAIN, PassedOn

CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})
"""The headers that hold one."""
CLIENT_ADDRESS: Final = b"x-lakeproof-client-address"
"""With which a process of this gateway passes the client's address on to another; nobody else's is read."""
_PASSED_ON: Final = frozenset({CLIENT_CERT, CLIENT_CERT_CHAIN})
_LOGINS: Final = CREDENTIALS | _PASSED_ON
JSON: Final = (b"content-type", b"application/json")


class Asked:
    """
    A request for the parts of a gateway process. `path` is as it was sent, still percent-encoded.
    """

    def __init__(self, scope: Scope, receive: Receive, *, path: str, gateway: Gateway, measures: Measures) -> None:
        self.method: Final[str] = scope["method"]
        self.path: Final = path
        self.gateway: Final = gateway
        self.measures: Final = measures
        self._raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._headers = dict(reversed(self._raw_headers))  # of a header that is repeated, the first one
        self._query_string: bytes = scope["query_string"]
        self._receive = receive
        self._body: bytes | None = None
        self._server: object = scope.get("server")
        self._scope = scope

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as they were sent, their names in lower case."""
        return self._raw_headers

    @property
    def whole_path(self) -> str:
        """Return the path with the query."""
        return f"{self.path}?{self._query_string.decode('latin-1')}" if self._query_string else self.path

    @property
    def is_of_peer(self) -> bool:
        """Whether another process of this gateway has passed it on: only they reach a socket without host and port."""
        return self._server is None

    @property
    def address(self) -> str:
        """Return the client's address, behind trusted proxies the one that they name; empty if it is not known."""
        if self.is_of_peer:
            return self.header(CLIENT_ADDRESS) or ""
        client = self._scope.get("client")
        return str(client[0]) if client else ""

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, whose name is given in lower case."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def whole_header(self, name: bytes) -> str:
        """Return the values of a header that is a list, joined if it is repeated (RFC 9110, section 5.3)."""
        if name not in self._headers:
            return ""
        return ", ".join(value.decode("latin-1") for each, value in self._raw_headers if each == name)

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the query; of one that is repeated, the last."""
        return QueryParams(self._query_string).get(name) if self._query_string else None

    @property
    def has_certificate(self) -> bool:
        """Whether its connection has a client certificate, or a header has one."""
        return CLIENT_CERTIFICATE in self._scope.get("extensions", ()) or not _PASSED_ON.isdisjoint(self._headers)

    def credentials(self) -> Credentials:
        """Return the credentials as the client sent them. Raises as `credentials_of`."""
        return credentials_of(self._scope)

    async def chunks(self) -> AsyncIterator[bytes]:
        """
        Yield the body as it arrives.

        Raises:
            BadRequestError: if the client hangs up before its end.
        """
        if self._body is not None:
            yield self._body
            return
        has_more = True
        while has_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise BadRequestError("the connection was closed before the end of the body", field="body")
            has_more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk

    async def read_body(self) -> bytes:
        """Return the whole body, which `chunks` yields again. Raises as `chunks`."""
        self._body = b"".join([chunk async for chunk in self.chunks()])
        return self._body


class Answer(NamedTuple):
    """An answer without error: its status, headers and body."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


NO_CONTENT: Final = Answer(204)


def json_answer(body: bytes, etag: str | None = None) -> Answer:
    """
    Return an answer with a body of JSON, and its entity tag if it has one.
    """
    length = (b"content-length", b"%d" % len(body))
    if etag is None:
        return Answer(200, (length, JSON), body)
    return Answer(200, (length, JSON, (b"etag", etag.encode())), body)


def credentials_of(scope: Scope) -> Credentials:
    """
    Return the credential in the headers of a request, with the client certificate of its connection if there is one,
    and with what is in the headers in which proxies pass one on, whoever has sent them.

    Raises as `credential_of`, and:
        BadRequestError: if several are passed on.
    """
    found = [pair for pair in scope["headers"] if pair[0] in _LOGINS]
    extensions = scope.get("extensions")
    # As a rule: neither kind of certificate, and at most one credential.
    if extensions is None and (not found or (len(found) == 1 and found[0][0] in CREDENTIALS)):
        return _credential(found)
    certificate = None if extensions is None else extensions.get(CLIENT_CERTIFICATE)
    authorization = credential_of(found)
    if len(found) == (0 if authorization is None else 1):
        return authorization if certificate is None else Certified(certificate, authorization)
    passed_on = [value.decode("latin-1") for name, value in found if name == CLIENT_CERT]
    if len(passed_on) > 1:
        raise BadRequestError("expected the header client-cert once, found it repeated")
    peer = None if extensions is None else extensions.get(PEER)
    return Certified(certificate, authorization, PassedOn(header=passed_on[0] if passed_on else "", peer=peer))


def credential_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """
    Return the credential as the client sent it: the Authorization header, or an X-Api-Key as if it were a bearer token.

    Raises:
        BadRequestError: if there is more than one: a proxy or another server might use another one than we do.
    """
    return _credential([pair for pair in headers if pair[0] in CREDENTIALS])


def _credential(found: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The one credential of headers that hold credentials alone. Raises as `credential_of`."""
    if not found:
        return None
    if len(found) > 1:
        raise BadRequestError("expected one credential, found several in Authorization and X-Api-Key")
    name, value = found[0]
    text = value.decode("latin-1")
    return text if name == b"authorization" else f"Bearer {text}"
