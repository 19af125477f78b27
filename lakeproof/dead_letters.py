# SPDX-License-Identifier: Apache-2.0
"""
Dead letters as they are shown, by commands and by the gateway, which knows nothing of streams.
"""

from __future__ import annotations

from typing import Any

from ledger.store.session import Connection
from streams.state.dead_letters import StoredLetter, read_letters


def letter_shown(letter: StoredLetter) -> dict[str, Any]:
    """Return a dead letter as JSON: never what it holds."""
    return {
        "source": letter.source,
        "id": letter.id,
        "attempts": letter.attempts,
        "died_at": letter.died_at.isoformat(),
        "reason": letter.reason,
    }


async def read_dead_letters(
    connection: Connection, log_id: int, source: str | None, limit: int
) -> list[dict[str, Any]]:
    """
    Return dead letters of a log that the connection's role may see, oldest first: of one source, if it is given.
    """
    return [letter_shown(each) for each in await read_letters(connection, log_id=log_id, source=source, limit=limit)]
