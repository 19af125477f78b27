# SPDX-License-Identifier: Apache-2.0
"""
An upstream that says what a test has written down for it, by path: whatever a catalog elsewhere may say, or should not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson
from fastapi import FastAPI, Request, Response


def error(kind: str, status: int) -> tuple[int, bytes]:
    return status, orjson.dumps({"error": {"message": f"{kind}!", "type": kind, "code": status}})


@dataclass(slots=True, kw_only=True)
class Script:
    """An upstream that answers by path; a path without an answer does not exist."""

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    received_headers: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)

        @app.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
        async def answer(request: Request) -> Response:
            target = request.scope["raw_path"].decode()
            if request.scope["query_string"]:
                target = f"{target}?{request.scope['query_string'].decode()}"
            self.seen.append((request.method, target, await request.body()))
            self.received_headers.append(dict(request.headers))
            status, body = self.answers.get(target, error("NoSuchTableException", 404))
            return Response(body, status_code=status, headers={"content-type": "application/json", **self.headers})

        return app

    def paths(self) -> list[str]:
        return [target for _, target, _ in self.seen]
