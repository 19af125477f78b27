# SPDX-License-Identifier: Apache-2.0
"""
What an application of the eventsourcing library records in a tenant's log, through an appender that runs already.
"""

from __future__ import annotations

import asyncio
from functools import partial

from eventsourcing.persistence import StoredEvent

from lakeproof.services import Services, new_group_id
from ledger.format.aggregates import RecordedKind
from ledger.store.event_store import LogAggregateRecorder, LogRecorder
from ledger.store.log_store import LogStore


async def save_note(services: Services, log_id: int, *versions: int, note: str = "note") -> None:
    """Record events of an aggregate, and a snapshot of the last of these versions."""
    database = services.gateway.database
    store = LogStore(
        services.appender, partial(database.as_role, services.gateway.roles.auditor), new_group_id=new_group_id
    )
    events = [
        StoredEvent(
            originator_id=note, originator_version=version, topic="Note.Written", state=f"text of {note}".encode()
        )
        for version in versions
    ]
    await asyncio.to_thread(LogRecorder(store, log_id).insert_events, events)
    await asyncio.to_thread(LogAggregateRecorder(store, log_id, RecordedKind.SNAPSHOT).insert_events, events[-1:])
