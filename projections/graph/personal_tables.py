# SPDX-License-Identifier: Apache-2.0
"""
The tables of the projections that hold content of payload parts: they have to be rewritten after an erasure.

An UPDATE leaves the old row version in the file, and VACUUM leaves its bytes in free space; only a table that is
rewritten no longer contains them.
"""

from __future__ import annotations

from ledger.store.read import Log
from ledger.store.session import Connection
from projections.graph.labels import VertexLabel
from projections.graph.write import graph_name


async def personal_tables(connection: Connection, log: Log) -> list[tuple[str, str]]:
    """
    Return schema and name of each such table of a log; `connection` works as the projector role.
    """
    tables = [("projections", "commits")]
    if log.tenant is None:
        return tables
    graphs = graph_name(log.tenant, 0).removesuffix("0")
    rows = await connection.execute(
        "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s) ORDER BY nspname", (graphs,)
    )
    return [*tables, *((name, VertexLabel.WRITE_EVENT.value) for (name,) in await rows.fetchall())]
