# SPDX-License-Identifier: Apache-2.0
"""
The requests of an administrator and a policy author in the scene: the gateway's own resources over HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import httpx

TIMEOUT_S: Final = 120.0
"""Longer than the gateway lets any client wait."""

TENANT_ID: Final = {
    "id": "p1-tenant-id",
    "expression": "commit.namespace[0] != 'sales' || commit.kind != 'table' || !result.exists\n"
    "  || result.columns.exists(c, c.name == 'tenant_id')",
    "message": "tables of sales must have a column tenant_id",
}
FINANCE: Final = {
    "id": "p2-finance",
    "expression": "commit.namespace[0] != 'finance' || 'data-eng' in principal.roles",
    "message": "only role data-eng may write to finance",
}
BROKEN: Final = {
    "id": "p3-broken",
    "expression": "commit.namespace[0] != 'sales'\n  || result.colums.size() > ",
    "message": "never saved",
}
ANALYSTS: Final = {
    "id": "analysts",
    "effect": "permit",
    "expression": "'analyst' in roles && op != 'UPDATE_REPOSITORY_CONFIG'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The gateway's resources, with one API key."""

    url: str
    key: str = field(repr=False)

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Post `body` as JSON; return the answer, whatever its status."""
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT_S) as client:
            return await client.post(path, json=body, headers={"Authorization": f"Bearer {self.key}"})

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """
        Create a resource; return it.

        Raises:
            AssertionError: if the answer is not 201.
        """
        answer = await self.post(path, body)
        if answer.status_code != httpx.codes.CREATED:
            raise AssertionError(f"POST {path}: expected 201, found {answer.status_code}: {answer.text:.300}")
        created: dict[str, Any] = answer.json()
        return created

    async def refused(self, path: str, body: dict[str, Any], *, status: int) -> str:
        """
        Try to create a resource that must be refused; return the reason.

        Raises:
            AssertionError: if the answer has another status.
        """
        answer = await self.post(path, body)
        if answer.status_code != status:
            raise AssertionError(f"POST {path}: expected {status}, found {answer.status_code}: {answer.text:.300}")
        return str(answer.json()["error"]["message"])

    async def metrics(self) -> str:
        """Return `/metrics`."""
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT_S) as client:
            return (await client.get("/metrics")).raise_for_status().text
