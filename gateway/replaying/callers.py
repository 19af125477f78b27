# SPDX-License-Identifier: Apache-2.0
"""
Who the callers of recorded decisions were, as far as that is not erased.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import orjson

from gateway.commit.gateway import Gateway
from gateway.replaying.recorded import PRINCIPAL, QUERIES
from ledger.format.sealing import StoredPart


async def names_of(gateway: Gateway, tenant: UUID, log_id: int, decisions: Mapping[str, int]) -> dict[str, str]:
    """
    Return the names of actors, each with the index of one of its decisions; none for one that was erased.
    """
    values = {"log_id": log_id, "indices": sorted(set(decisions.values())), "names": [PRINCIPAL]}
    async with gateway.database.as_role(gateway.roles.tenant(tenant)) as connection:
        rows = await (await connection.execute(QUERIES["parts_of_entries"], values, binary=True)).fetchall()
    names: dict[str, str] = {}
    for row in rows:
        part = gateway.opener.open(StoredPart(*row))
        if part is not None:
            members = orjson.loads(part.payload)
            names[members["actor"]] = members["sub"]
    return names
