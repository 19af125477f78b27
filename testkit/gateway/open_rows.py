# SPDX-License-Identifier: Apache-2.0
"""
The open decisions of a log, all of them, as the gateway's role sees them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from gateway.commit.open_decisions import OpenDecision, parse_open_decision
from lakeproof.services import Services

QUERY: Final = """
SELECT
    log_id, decision, key, operation, alias, namespace, name, base, table_uuid, snapshots, owner, deadline,
    requirements, result, is_unknown
FROM gateway.open_decisions WHERE log_id = %s AND deadline < %s ORDER BY deadline, decision
"""


async def open_rows(services: Services, log_id: int, before: datetime) -> list[OpenDecision]:
    """Return those whose deadline is before `before`, the oldest first."""
    async with services.gateway.database.as_role(services.gateway.roles.gateway) as connection:
        rows = await (await connection.execute(QUERY, (log_id, before))).fetchall()
    return [parse_open_decision(row) for row in rows]
