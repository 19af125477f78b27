# SPDX-License-Identifier: Apache-2.0
"""Entries of the control plane as they would be parsed from the log, without a log."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from ledger.format.aggregates import Versioned, key_of
from ledger.format.entry import Branch, Entry
from ledger.format.events import to_data

ACTOR: Final = "0123456789abcdef" * 2
NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)


def entry(index: int, event: Versioned, **changes: Any) -> Entry:
    """Return the entry of an event, by `ACTOR` at `NOON`; `changes` replace other members of it."""
    whole = Entry(
        log="lakeproof.invalid/test",
        index=index,
        previous=bytes(32),
        recorded_at=NOON,
        group_id=UUID(int=index),
        branch=Branch.THEN,
        of=1,
        position=0,
        type=event.TYPE,
        version=event.VERSION,
        key=key_of(event),
        actor=ACTOR,
        occurred_at=NOON,
        data=to_data(event),
        parts={},
    )
    return replace(whole, **changes)
