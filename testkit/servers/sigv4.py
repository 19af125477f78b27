# SPDX-License-Identifier: Apache-2.0
"""
Checks AWS signatures as a server does, written from AWS's description of Signature Version 4 and nothing else: whoever
signs with a library is checked by other code.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

SKEW_MAX: Final = timedelta(minutes=5)
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/([\w-]+)/aws4_request, SignedHeaders=([\w;-]+), "
    r"Signature=([0-9a-f]{64})"
)


class SignatureRefusedError(Exception):
    """A request is not signed as it has to be; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as it arrived: path and query as they were sent, names of headers in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class SignatureCheck:
    """What requests have to be signed with."""

    access_key_id: str
    secret_access_key: str
    region: str
    service: str
    now: Callable[[], datetime]
    session_token: str | None = None
    refusals: list[str] = field(default_factory=list)
    passed: list[SignedRequest] = field(default_factory=list)

    def check(self, request: SignedRequest) -> None:
        """Check one request. Raises SignatureRefusedError."""
        match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if match is None:
            raise SignatureRefusedError("no signature")
        key_id, day, region, service, names, signature = match.groups()
        time = request.headers["x-amz-date"]
        signed_at = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(self.now() - signed_at) > SKEW_MAX:
            raise SignatureRefusedError("the signature has expired")
        if (key_id, day, region, service) != (self.access_key_id, time[:8], self.region, self.service):
            raise SignatureRefusedError("another scope")
        if request.headers.get("x-amz-security-token") != self.session_token:
            raise SignatureRefusedError("another session")
        signed = names.split(";")
        if not {"host", *(name for name in request.headers if name.startswith("x-"))} <= set(signed):
            raise SignatureRefusedError("a header that has to be signed is not")
        hashed = hashlib.sha256(request.body).hexdigest()
        if request.headers.get("x-amz-content-sha256", hashed) != hashed:
            raise SignatureRefusedError("another body")
        if not hmac.compare_digest(signature, self.signature(request, signed)):
            raise SignatureRefusedError("another signature")

    def signature(self, request: SignedRequest, signed: list[str]) -> str:
        """Return the signature of a request over the headers `signed`."""
        time = request.headers["x-amz-date"]
        # Every segment once more, as for all services but S3; a query is sorted by name, then by value.
        segments = request.path.split("/")
        path = request.path if self.service == "s3" else "/".join(quote(each, safe="-_.~") for each in segments)
        pairs = sorted(tuple(pair.partition("=")[::2]) for pair in request.query.split("&") if pair)
        canonical = "\n".join(
            [
                request.method,
                path,
                "&".join(f"{name}={value}" for name, value in pairs),
                *(f"{name}:{' '.join(request.headers[name].split())}" for name in signed),
                "",
                ";".join(signed),
                hashlib.sha256(request.body).hexdigest(),
            ]
        )
        scope = f"{time[:8]}/{self.region}/{self.service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.secret_access_key}".encode()
        for part in (time[:8], self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()

    def guard(self, guarded: Starlette) -> Any:
        """Return an application that passes on to `guarded` what is signed; its refusal is not the protocol's."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            body = await Request(scope, receive).body()
            arrived = SignedRequest(
                method=scope["method"],
                path=scope["raw_path"].decode(),
                query=scope["query_string"].decode(),
                headers={name.decode(): value.decode() for name, value in scope["headers"]},
                body=body,
            )
            try:
                self.check(arrived)
            except SignatureRefusedError as error:
                self.refusals.append(str(error))
                refused: Response = JSONResponse({"message": str(error)}, status_code=403)
                await refused(scope, receive, send)
                return
            self.passed.append(arrived)

            async def again() -> Any:
                return {"type": "http.request", "body": body, "more_body": False}

            await guarded(scope, again, send)

        return app
