# SPDX-License-Identifier: Apache-2.0
"""
AWS Glue for tests: moto's, with what AWS does and moto does not.

moto passes over the `VersionId` of UpdateTable, gives lists whole, and tells `Orders` from `orders`. Here an update of
another version than the table's is refused (`ConcurrentModificationException`), lists have pages, and names are folded
to lower case, as the AWS Glue Web API reference says of UpdateTable, GetTables, and the names of Table and Database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from testkit.servers.faulty_wire import Request as WireRequest
from testkit.servers.loopback import serve

CONTENT_TYPE: Final = "application/x-amz-json-1.1"
LISTS: Final = {"GetTables": "TableList", "GetDatabases": "DatabaseList"}
_METHODS: Final = {"Get": "GET", "Cre": "POST", "Upd": "POST", "Del": "DELETE"}
_NAMES: Final = ("DatabaseName", "Name")


@dataclass(kw_only=True)
class GlueFront:
    """Passes requests on to moto, one change at a time."""

    moto: httpx.AsyncClient
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, request: Request) -> Response:
        action, asked = _action(request.headers["x-amz-target"]), orjson.loads(await request.body())
        asked |= {name: asked[name].lower() for name in _NAMES if name in asked}
        if action in LISTS:
            return await self._page(request, action, asked)
        if not action.startswith("Update"):
            return await self._pass_on(request, asked)
        async with self.turns:
            if action == "UpdateTable" and (expected := asked.get("VersionId")) is not None:
                named = {"DatabaseName": asked["DatabaseName"], "Name": asked["TableInput"]["Name"]}
                there = await self._pass_on(request, named, action="GetTable")
                if there.status_code == 200 and orjson.loads(there.body)["Table"]["VersionId"] != expected:
                    return refused("ConcurrentModificationException", "Update table failed due to concurrent changes")
            return await self._pass_on(request, asked)

    async def _page(self, request: Request, action: str, asked: dict[str, Any]) -> Response:
        begin, size = int(asked.pop("NextToken", "0")), int(asked.pop("MaxResults", 100))
        if not 1 <= size <= 100:
            return refused("InvalidInputException", "MaxResults must be between 1 and 100")
        whole = await self._pass_on(request, asked)
        if whole.status_code != 200:
            return whole
        found = orjson.loads(whole.body)[LISTS[action]]
        page = {LISTS[action]: found[begin : begin + size]}
        if begin + size < len(found):
            page["NextToken"] = str(begin + size)
        return Response(orjson.dumps(page), media_type=CONTENT_TYPE)

    async def _pass_on(self, request: Request, asked: dict[str, Any], *, action: str | None = None) -> Response:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.startswith("x-amz") or name == "authorization"
        }
        headers |= {"content-type": CONTENT_TYPE}
        if action is not None:
            headers["x-amz-target"] = f"AWSGlue.{action}"
        answer = await self.moto.post("/", content=orjson.dumps(asked), headers=headers)
        return Response(answer.content, status_code=answer.status_code, media_type=CONTENT_TYPE)


def refused(kind: str, message: str) -> Response:
    """Return an error of Glue."""
    return Response(orjson.dumps({"__type": kind, "message": message}), status_code=400, media_type=CONTENT_TYPE)


@asynccontextmanager
async def open_glue(moto: str) -> AsyncIterator[str]:
    """Yield the URL of Glue, with what moto's at `moto` has."""
    async with httpx.AsyncClient(base_url=moto, trust_env=False, timeout=60) as client:
        front = GlueFront(moto=client)
        async with serve(Starlette(routes=[Route("/", front.answer, methods=["POST"])])) as url:
            yield url


def seen_as(request: WireRequest) -> WireRequest:
    """
    Return a request to Glue with the method and the path that the Iceberg REST protocol would have for it.
    """
    head, _, body = request.data.partition(b"\r\n\r\n")
    target = next(
        line.partition(b":")[2].strip().decode()
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"x-amz-target:")
    )
    action, asked = _action(target), orjson.loads(body)
    return WireRequest(method=_METHODS[action[:3]], target=_path(action, asked), data=request.data)


def _path(action: str, asked: dict[str, Any]) -> str:
    namespace, name = asked.get("DatabaseName"), asked.get("Name")
    match action:
        case "UpdateTable":
            return f"/namespaces/{namespace}/tables/{asked['TableInput']['Name']}"
        case "UpdateDatabase":
            return f"/namespaces/{name}/properties"
        case "CreateTable" | "GetTables":
            return f"/namespaces/{namespace}/tables"
        case "CreateDatabase" | "GetDatabases":
            return "/namespaces"
        case "GetDatabase" | "DeleteDatabase":
            return f"/namespaces/{name}"
        case _:
            return f"/namespaces/{namespace}/tables/{name}"


def _action(target: str) -> str:
    return target.removeprefix("AWSGlue.")
