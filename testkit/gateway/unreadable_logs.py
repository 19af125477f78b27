# SPDX-License-Identifier: Apache-2.0
"""
Logs from which what is in force cannot be read: a newer version has written there, or somebody has changed an entry.
"""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg

from lakeproof.services import Services, new_group_id
from ledger.format.event import Event, prepare
from ledger.format.sequence import Group


async def append_newer(services: Services, log_id: int) -> None:
    """Append a control entry that a newer process might have written."""
    now = datetime.now(UTC)
    event = Event(type="policy.archived", version=1, key="policy:p", actor="system", occurred_at=now, data={"id": "p"})
    await services.appender.append(log_id, Group(id=new_group_id(), then=(prepare(event),)))


def change_policy(database: str, log_id: int, text: str, put: str) -> None:
    """Change the text of the only policy of a log in the database, as a superuser can."""
    with psycopg.connect(database) as connection:
        changed = connection.execute(
            "UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), %s, %s)::bytea "
            "WHERE log_id = %s AND type = 'policy.created'",
            (text, put, log_id),
        )
        assert changed.rowcount == 1
