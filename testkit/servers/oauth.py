# SPDX-License-Identifier: Apache-2.0
"""
A token server for client credentials (RFC 6749, section 4.4), and a guard that lets only its tokens through.

What it answers can be replaced, as a script's answers can; what it was asked stays readable.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

TOKENS_PATH: Final = "/v1/oauth/tokens"


@dataclass(slots=True, eq=False, kw_only=True)
class TokenServer:
    """Gives a new token to whoever has the credential; `valid` are those that the guard lets through."""

    credential: str = "gateway:hunter2"
    expires_in: object = 3_600
    says: tuple[int, bytes] | None = None
    """Another answer than its own."""
    headers: dict[str, str] = field(default_factory=dict)
    go_on: asyncio.Event | None = None
    """What it waits for before it answers."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    forms: list[dict[str, str]] = field(default_factory=list)
    """What it was asked, in order."""
    issued: list[str] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)
    let_through: list[str] = field(default_factory=list)
    """The tokens of the requests that the guard let through."""
    turned_away: list[str | None] = field(default_factory=list)
    """The header Authorization of those that it did not."""

    async def answer(self, request: Request) -> Response:
        """Answer one request for a token (RFC 6749, sections 5.1 and 5.2)."""
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        form = dict(parse_qsl((await request.body()).decode("ascii"), strict_parsing=True))
        self.forms.append(form)
        self.asked.set()
        if self.go_on is not None:
            await self.go_on.wait()
        if self.says is not None:
            return Response(self.says[1], status_code=self.says[0], headers=self.headers)
        client_id, secret = form.get("client_id"), form["client_secret"]
        if (secret if client_id is None else f"{client_id}:{secret}") != self.credential:
            text = f"{client_id} is not known with {secret}"
            return _json({"error": "invalid_client", "error_description": text}, status=401)
        token = f"token-{len(self.issued)}:sub={quote(client_id or '')}"
        self.issued.append(token)
        self.valid.add(token)
        answer = {"access_token": token, "token_type": "bearer", "scope": form["scope"]}
        return _json(answer if self.expires_in is None else answer | {"expires_in": self.expires_in})

    def app(self, guarded: Starlette) -> Starlette:
        """Return an application that gives tokens, and lets through to `guarded` whoever has one."""

        async def guard(scope: Any, receive: Any, send: Any) -> None:
            authorization = dict(scope["headers"]).get(b"authorization", b"").decode()
            token = authorization.removeprefix("Bearer ")
            if token == authorization or token not in self.valid:
                self.turned_away.append(authorization or None)
                refused = {"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}}
                await _json(refused, status=401)(scope, receive, send)
                return
            self.let_through.append(token)
            await guarded(scope, receive, send)

        return Starlette(routes=[Route(TOKENS_PATH, self.answer, methods=["POST"]), Mount("", app=guard)])


def _json(content: object, *, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status_code=status, media_type="application/json")
