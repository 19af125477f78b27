# SPDX-License-Identifier: Apache-2.0
"""
The uuid of a table or view that a catalog has, for access rules that read it.
"""

from __future__ import annotations

from uuid import UUID

from gateway.catalogs.onward import Onward
from gateway.commit.gateway import Gateway
from gateway.control.plane import ControlState
from gateway.errors import GatewayError
from gateway.identifiers import Target
from gateway.metadata import known_uuid


async def upstream_uuid(
    gateway: Gateway, tenant: UUID, state: ControlState, target: Target, onward: Onward | None = None
) -> str | None:
    """
    Return the uuid of a table or view, loaded from its catalog; empty if there is none, None if it cannot be loaded.
    """
    try:
        loaded = await gateway.catalog(tenant, state, target.alias, onward).load(target)
    except GatewayError:
        return None  # who is permitted all the same is told what is wrong
    return "" if loaded.metadata is None else known_uuid(loaded.metadata)
