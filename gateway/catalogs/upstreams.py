# SPDX-License-Identifier: Apache-2.0
"""
The upstreams of one process: the address and credentials of each, discovered once and again after a failed request.

An upstream gives its prefix, separator and configuration at `/v1/config`; `Endpoint` is what follows from that. A
catalog's options never change under one alias, so an endpoint stays valid until the upstream itself changes.

An upstream may redirect to another path, never to another server: host, port and TLS are those of the option `uri`, or
of one that the option `uri-overrides` names. Everything else in its configuration (where tokens, signatures and storage
are) is ignored here.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Configuration
from gateway.catalogs.connections import JSON, Call, Connections
from gateway.catalogs.login import Login, Secrets
from gateway.catalogs.nessie import Branch, parse_branch
from gateway.catalogs.onward import DELEGATION_HEADER, HOPS_HEADER, Onward
from gateway.catalogs.replies import Answered, NeverSent, Refused, Reply, Unanswered, error_of, message_of
from gateway.catalogs.rewrite import UpstreamUrl, error_answer, public_configuration
from gateway.catalogs.upstream import exchange
from gateway.catalogs.upstream_files import UpstreamFiles, reading_threads
from gateway.catalogs.urls import URI, URI_OVERRIDES, is_plain_url, is_same_server, segment, uris_of
from gateway.errors import (
    GatewayError,
    UnavailableError,
    UpstreamAnswerError,
    UpstreamCredentialsError,
    UpstreamNotAllowedError,
)
from ledger.errors import FormatError
from ledger.format.json_object import parse_object

ENDPOINTS_MAX: Final = 1_000
"""Endpoints that an upstream may say it has; the specification has 35."""
REQUESTS_MAX: Final = 16
"""Concurrent requests to one upstream."""
SEPARATOR_DEFAULT: Final = "%1F"
TRANSACTIONS: Final = "transactions"
"""The option that says what becomes of commits to several tables if the upstream offers no transactions."""
SEQUENTIAL: Final = "sequential"
UNAUTHENTICATED: Final = frozenset({401, 419})
"""419 is the REST specification's AuthenticationTimeout."""

_SEGMENT: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+"
_PREFIX = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_SEPARATOR = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2}){1,16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """
    Where an upstream's catalog is: `root` ends before `/namespaces`; `url` finds its URL in texts for engines.

    `branch` is that of a Nessie.
    """

    root: str
    separator: str
    url: UpstreamUrl
    configuration: Configuration
    branch: Branch | None = None

    def namespace(self, levels: tuple[str, ...]) -> str:
        """Return a namespace as one segment of a path, or the value of a query."""
        return self.separator.join(map(segment, levels))


@dataclass(slots=True, eq=False, kw_only=True)
class Upstream:
    """
    One alias of one tenant: `options` are its catalog's, `files` those that may be registered in it.

    The event loop owns it. `endpoint` is None until `/v1/config` was read, and again after a failed request; `turns`
    bounds the concurrent requests.
    """

    alias: str
    options: Mapping[str, str]
    client: Connections
    login: Login
    files: UpstreamFiles
    timeout_s: float
    endpoint: Endpoint | None = None
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REQUESTS_MAX))

    @property
    def uri(self) -> str:
        """Return the upstream's URL according to the catalog's options."""
        return self.options[URI].rstrip("/")

    @property
    def url(self) -> UpstreamUrl:
        """Return what finds its URL in texts for engines, whether or not `/v1/config` is known at the moment."""
        return UpstreamUrl(self.uri, *uris_of(self.options)) if self.endpoint is None else self.endpoint.url

    async def find(self, onward: Onward) -> Endpoint:
        """
        Return where the catalog is; `/v1/config` is requested if that is not known yet.

        Raises:
            UnavailableError: if it does not answer; UpstreamNotAllowedError if its address is not allowed.
            UpstreamCredentialsError: if it refuses the gateway's credentials, or there are none.
            UpstreamAnswerError: if it refuses.
        """
        # No request waits for another's: in a ring of catalogs all would wait for each other.
        endpoint = self.endpoint
        if endpoint is None:
            endpoint = self.endpoint = await self._find(onward)
        return endpoint

    def forget(self) -> None:
        """Request `/v1/config` again next time: the upstream did not answer as it should."""
        self.endpoint = None

    async def _find(self, onward: Onward) -> Endpoint:
        warehouse = self.options.get("warehouse")
        query = "" if warehouse is None else f"?warehouse={quote(warehouse, safe='')}"
        reply = await self.ask("GET", f"{self.uri}/v1/config{query}", onward)
        match reply:
            case Answered(status=200, body=body):
                return self._parse(body)
            case Answered(status=status) if 400 <= status <= 499 and status != 404:
                raise self.refusal(reply)
            case _:
                # 404 among them: a missing warehouse does not mean that a table is missing.
                raise self.unavailable(reply)

    def _parse(self, body: bytes) -> Endpoint:
        try:
            parsed = parse_object(body, what="configuration")
        except FormatError as error:
            raise self._malformed("a JSON object") from error
        defaults, overrides = (_texts(parsed.get(name)) for name in ("defaults", "overrides"))
        configuration = {**defaults, **overrides}
        uri = overrides.get("uri", self.uri).rstrip("/")
        prefix = configuration.get("prefix", "").strip("/")
        separator = configuration.get("namespace-separator", SEPARATOR_DEFAULT)
        if not is_plain_url(uri):
            raise self._malformed("a plain http or https uri")
        servers = (self.uri, *uris_of(self.options))
        if not any(is_same_server(named, uri) for named in servers):
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
        return Endpoint(
            root=f"{uri}/v1/{prefix}" if prefix else f"{uri}/v1",
            separator=separator,
            url=url,
            configuration=Configuration(
                defaults=public_configuration(defaults, url),
                overrides=public_configuration(overrides, url),
                endpoints=_endpoints(parsed.get("endpoints")),
                reads_files=self.files.are_readable,
                commits_in_turn=self.options.get(TRANSACTIONS) == SEQUENTIAL,
            ),
            branch=parse_branch(configuration, servers),
        )

    def _malformed(self, expected: str) -> UnavailableError:
        return UnavailableError(f"the upstream of catalog {self.alias}: expected {expected} from /v1/config")

    async def ask(
        self,
        method: str,
        url: str,
        onward: Onward,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        content_type: str = JSON,
    ) -> Reply:
        """
        Send one request and return the reply; no error in it names the upstream's URL.

        It is sent again, once, if the upstream refuses its credentials and there may be others.

        Raises:
            UpstreamCredentialsError: if the gateway has no credentials for it; nothing was sent.
            UnavailableError: if a token that it needs for it cannot be had now; nothing was sent.
        """
        sent = {**({HOPS_HEADER: ",".join(onward.hops)} if onward.hops else {}), **headers}
        if onward.delegation is not None:
            sent[DELEGATION_HEADER] = onward.delegation
        call = Call(method=method, url=url, headers=sent, body=body, content_type=content_type)
        reply = await self._ask(call, onward)
        url_of_upstream = self.url
        match reply:
            case Answered(status=status, body=said) if not 200 <= status <= 299:
                return replace(reply, body=error_answer(said, url_of_upstream))
            case Answered():
                return reply
            case NeverSent() | Unanswered():
                return replace(reply, cause=url_of_upstream.removed(reply.cause))

    async def _ask(self, call: Call, onward: Onward) -> Reply:
        """Send it with the gateway's credentials, and once more with new ones if these are refused."""
        sent = await self.login.authenticated(call)
        deadline_s = asyncio.get_running_loop().time() + self.timeout_s
        reply = await self._exchange(sent, onward, timeout_s=self.timeout_s)
        if not isinstance(reply, Answered) or reply.status not in UNAUTHENTICATED or not self.login.forget(sent):
            return reply
        # A mutation may be repeated here, and nowhere else: the answer says that the request was not carried out, for
        # lack of valid credentials (RFC 9110, section 15.5.2), and `replies.py` takes it for that with any request.
        # Once: new credentials that are refused too are not what is wrong.
        try:
            renewed = await self.login.authenticated(call)
        except GatewayError:
            return reply  # no others can be had now; the next request says why
        left_s = deadline_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            return reply
        again = await self._exchange(renewed, onward, timeout_s=left_s)
        # Not sent again: the refusal is what the upstream has to say. Sent again and unanswered: nobody knows.
        return reply if isinstance(again, NeverSent) else again

    async def _exchange(self, call: Call, onward: Onward, *, timeout_s: float) -> Reply:
        reply = await self._in_turn(call, timeout_s=timeout_s)
        onward.observe(call.method, _seen(reply))
        return reply

    async def _in_turn(self, call: Call, *, timeout_s: float) -> Reply:
        """Send it when a turn is free: an upstream that hangs must not take connections from others."""
        try:
            if self.turns.locked():
                async with asyncio.timeout(timeout_s):
                    await self.turns.acquire()
            else:
                await self.turns.acquire()  # at once
        except TimeoutError:
            return NeverSent(cause=f"{REQUESTS_MAX} requests are under way already")
        try:
            return await exchange(self.client, call, timeout_s=timeout_s)
        finally:
            self.turns.release()

    def refusal(self, answered: Answered) -> GatewayError:
        """Return the error for an answer that certainly refuses; it carries the upstream's own answer."""
        # What stands before the catalog checks signatures, and does not speak its protocol.
        is_of_signature = answered.status == 403 and self.login.signs and error_of(answered) is None
        if answered.status in UNAUTHENTICATED or is_of_signature:
            said = f"the upstream of catalog {self.alias} refuses the gateway's credentials ({answered.status})"
            return UpstreamCredentialsError(f"{said}: {self.login.advice}")
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
        """Return the error for a read that the upstream did not answer; nothing was changed."""
        self.forget()
        if isinstance(reply, Refused):
            return UpstreamNotAllowedError(f"the upstream of catalog {self.alias}: {reply.cause}")
        cause = message_of(reply) if isinstance(reply, Answered) else reply.cause
        return UnavailableError(f"the upstream of catalog {self.alias} does not answer as it should: {cause}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """
    What the upstreams of a process share: connections, secrets, the time limit for an answer, clocks, and the threads
    that read files.
    """

    client: Connections
    secrets: Secrets
    timeout_s: float
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock_s: Callable[[], float] = time.monotonic
    reading: Executor = field(default_factory=reading_threads)

    def upstream(self, tenant: UUID, alias: str, options: Mapping[str, str]) -> Upstream:
        """Return the upstream that a catalog's options describe."""
        login = Login(
            tenant=tenant,
            alias=alias,
            options=options,
            client=self.client,
            secrets=self.secrets,
            timeout_s=self.timeout_s,
            now=self.now,
            clock_s=self.clock_s,
        )
        files = UpstreamFiles(
            tenant=tenant,
            alias=alias,
            options=options,
            secrets=self.secrets,
            egress=self.client.egress,
            threads=self.reading,
            timeout_s=self.timeout_s,
        )
        return Upstream(
            alias=alias, options=options, client=self.client, login=login, files=files, timeout_s=self.timeout_s
        )


def _endpoints(value: Any) -> frozenset[str] | None:
    """What an upstream's `/v1/config` says that it has; None if it does not say."""
    if not isinstance(value, list) or len(value) > ENDPOINTS_MAX:
        return None
    return frozenset(text for text in value if isinstance(text, str))


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _seen(reply: Reply) -> str:
    """The reply as a metric label: a bounded set."""
    match reply:
        case Answered(status=status):
            return f"{status // 100}xx"
        case NeverSent():
            return "never_sent"
        case Unanswered():
            return "unanswered"
