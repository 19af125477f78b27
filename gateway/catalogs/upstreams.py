"""
The upstreams of one process: how each is reached and as whom. Found out once, and again after one did not answer.

An upstream tells its own prefix, separator and configuration at `/v1/config`; `Place` is what follows from that. A
catalog's options never change under one alias, so what was found out stays true until the upstream itself changes.

An upstream may move us to another path, never to another server: host, port and TLS are those of the option `uri`, or
of one that the option `uri-overrides` names. Of all else that it tells (where tokens, signatures and storage are)
nothing is followed here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import quote
from uuid import UUID

import httpx
import orjson

from gateway.catalogs.catalog import Configuration
from gateway.catalogs.onward import DELEGATION_HEADER, HOPS_HEADER, Onward
from gateway.catalogs.replies import Answered, NeverSent, Refused, Reply, Unanswered, error_of, message_of
from gateway.catalogs.rewrite import UpstreamUrl, error_answer, public_configuration
from gateway.catalogs.upstream import Call, exchange
from gateway.catalogs.urls import is_plain_url, is_same_server
from gateway.errors import (
    GatewayError,
    UnavailableError,
    UpstreamAnswerError,
    UpstreamCredentialsError,
    UpstreamNotAllowedError,
)
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from projections.errors import SecretMissingError

SECRET: Final = "secret:"  # noqa: S105 - the word before a secret's name, not one
URI_OVERRIDES: Final = "uri-overrides"
"""The option that names, separated by commas, other URLs to which `/v1/config` may move us."""
REQUESTS_MAX: Final = 16
"""Requests to one upstream at a time."""
SEPARATOR_DEFAULT: Final = "%1F"
UNAUTHENTICATED: Final = frozenset({401, 419})
"""419 is the REST specification's AuthenticationTimeout."""

_SEGMENT: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+"
_PREFIX = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_SEPARATOR = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2}){1,16}")


class Secrets(Protocol):
    """Where the secrets are that catalogs' options name."""

    def read(self, tenant: UUID, secret: str) -> str:
        """Return the secret of that id; raises SecretMissingError. Blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an upstream's catalog is: `root` ends before `/namespaces`; `url` finds it in texts that engines see."""

    root: str
    separator: str
    url: UpstreamUrl
    configuration: Configuration

    def namespace(self, levels: tuple[str, ...]) -> str:
        """Return a namespace as one segment of a path, or the value of a query."""
        return self.separator.join(quote(level, safe="") for level in levels)


@dataclass(slots=True, eq=False, kw_only=True)
class Upstream:
    """One alias of one tenant: `options` are its catalog's."""

    tenant: UUID
    alias: str
    options: Mapping[str, str]
    client: httpx.AsyncClient
    secrets: Secrets
    timeout_s: float
    place: Place | None = None
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REQUESTS_MAX))

    @property
    def uri(self) -> str:
        """Return where the catalog's options say that the upstream is."""
        return self.options["uri"].rstrip("/")

    async def find(self, onward: Onward) -> Place:
        """
        Return where to ask; the upstream is asked for it once.

        Raises:
            UnavailableError: if it does not tell; UpstreamNotAllowedError if it is not where it may be.
            UpstreamCredentialsError: if it does not know the gateway's credentials, or there are none.
            UpstreamAnswerError: if it says no.
        """
        # Nobody waits for another's question: in a ring of catalogs all would wait for each other.
        place = self.place
        if place is None:
            place = self.place = await self._find(onward)
        return place

    def forget(self) -> None:
        """Ask again where it is: it did not answer as it should."""
        self.place = None

    async def _find(self, onward: Onward) -> Place:
        warehouse = self.options.get("warehouse")
        query = "" if warehouse is None else f"?warehouse={quote(warehouse, safe='')}"
        reply = await self.ask("GET", f"{self.uri}/v1/config{query}", onward)
        match reply:
            case Answered(status=200, body=body):
                return self._parse(body)
            case Answered(status=status) if 400 <= status <= 499 and status != 404:
                raise self.refusal(reply)
            case _:
                # 404 among them: that there is no such warehouse does not say that a table is not there.
                raise self.unavailable(reply)

    def _parse(self, body: bytes) -> Place:
        try:
            parsed = parse_object(body, what="configuration")
        except FormatError as error:
            raise self._malformed("a JSON object") from error
        defaults, overrides = (_texts(parsed.get(name)) for name in ("defaults", "overrides"))
        told = {**defaults, **overrides}
        uri = overrides.get("uri", self.uri).rstrip("/")
        prefix = told.get("prefix", "").strip("/")
        separator = told.get("namespace-separator", SEPARATOR_DEFAULT)
        if not is_plain_url(uri):
            raise self._malformed("a plain http or https uri")
        if not any(is_same_server(named, uri) for named in (self.uri, *uris_of(self.options))):
            raise UpstreamNotAllowedError(
                f"the upstream of catalog {self.alias}: expected /v1/config to name a uri on the server of the option "
                f"uri, found another server: if that is right, register a catalog with that uri, or with it in the "
                f"option {URI_OVERRIDES}"
            )
        if prefix and (not _PREFIX.fullmatch(prefix) or not {".", ".."}.isdisjoint(prefix.split("/"))):
            raise self._malformed("a prefix that a path can hold")
        if not _SEPARATOR.fullmatch(separator):
            raise self._malformed("a namespace-separator that a path can hold")
        url = UpstreamUrl(self.uri, uri)
        return Place(
            root=f"{uri}/v1/{prefix}" if prefix else f"{uri}/v1",
            separator=separator,
            url=url,
            configuration=Configuration(
                defaults=public_configuration(defaults, url), overrides=public_configuration(overrides, url)
            ),
        )

    def _malformed(self, expected: str) -> UnavailableError:
        return UnavailableError(f"the upstream of catalog {self.alias}: expected {expected} from /v1/config")

    async def ask(self, method: str, url: str, onward: Onward, *, body: bytes | None = None) -> Reply:
        """
        Send one request and return what came of it; no error in it names the upstream's URL.

        Raises:
            UpstreamCredentialsError: if the gateway has no credentials for it; nothing was sent.
        """
        headers = {HOPS_HEADER: ",".join(onward.hops)}
        if (token := await self._token()) is not None:
            headers["Authorization"] = f"Bearer {token}"
        if onward.delegation is not None:
            headers[DELEGATION_HEADER] = onward.delegation
        call = Call(method=method, url=url, headers=headers, body=body)
        reply = await self._exchange(call)
        onward.observe(method, _seen(reply))
        places = UpstreamUrl(self.uri) if self.place is None else self.place.url
        match reply:
            case Answered(status=status, body=said) if not 200 <= status <= 299:
                return replace(reply, body=error_answer(said, places))
            case Answered():
                return reply
            case NeverSent() | Unanswered():
                return replace(reply, cause=places.removed(reply.cause))

    async def _exchange(self, call: Call) -> Reply:
        """Send it when it is its turn: an upstream that hangs takes no connections from the others."""
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.turns.acquire()
        except TimeoutError:
            return NeverSent(cause=f"{REQUESTS_MAX} requests are under way already")
        try:
            return await exchange(self.client, call, timeout_s=self.timeout_s)
        finally:
            self.turns.release()

    async def _token(self) -> str | None:
        reference = self.options.get("token")
        if reference is None:
            return None
        try:
            # Read anew each time: a token that is exchanged is used at once.
            return await asyncio.to_thread(self.secrets.read, self.tenant, reference.removeprefix(SECRET))
        except SecretMissingError as error:
            raise UpstreamCredentialsError(
                f"the gateway has no credentials for the upstream of catalog {self.alias}: {reference} is not there"
            ) from error

    def refusal(self, answered: Answered) -> GatewayError:
        """Return what an engine is told of an answer that is a certain no: the upstream's own."""
        if answered.status in UNAUTHENTICATED:
            return UpstreamCredentialsError(
                f"the upstream of catalog {self.alias} refuses the gateway's credentials ({answered.status})"
            )
        body = answered.body
        if error_of(answered) is None:
            error = {"message": message_of(answered), "type": "UpstreamAnswerException", "code": answered.status}
            body = orjson.dumps({"error": error})
        return UpstreamAnswerError(
            message_of(answered),
            status=answered.status,
            body=body,
            content_type="application/json",
            retry_after=answered.retry_after,
        )

    def unavailable(self, reply: Reply) -> UnavailableError:
        """Return what an engine is told if a question to the upstream was not answered; nothing was changed."""
        self.forget()
        if isinstance(reply, Refused):
            return UpstreamNotAllowedError(f"the upstream of catalog {self.alias}: {reply.cause}")
        cause = message_of(reply) if isinstance(reply, Answered) else reply.cause
        return UnavailableError(f"the upstream of catalog {self.alias} does not answer as it should: {cause}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """What the upstreams of a process share: connections, secrets, and how long one may take to answer."""

    client: httpx.AsyncClient
    secrets: Secrets
    timeout_s: float

    def upstream(self, tenant: UUID, alias: str, options: Mapping[str, str]) -> Upstream:
        """Return the upstream that a catalog's options describe."""
        return Upstream(
            tenant=tenant,
            alias=alias,
            options=options,
            client=self.client,
            secrets=self.secrets,
            timeout_s=self.timeout_s,
        )


def uris_of(options: Mapping[str, str]) -> list[str]:
    """
    Return the URLs in the option `uri-overrides`.
    """
    return [uri for text in options.get(URI_OVERRIDES, "").split(",") if (uri := text.strip().rstrip("/"))]


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _seen(reply: Reply) -> str:
    """The reply as metrics name it: bounded in number."""
    match reply:
        case Answered(status=status):
            return f"{status // 100}xx"
        case NeverSent():
            return "never_sent"
        case Unanswered():
            return "unanswered"
