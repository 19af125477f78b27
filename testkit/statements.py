# SPDX-License-Identifier: Apache-2.0
"""
Counts the statements that this process sends to PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import AsyncConnection, sql


def note_statements(
    monkeypatch: pytest.MonkeyPatch, is_counted: Callable[[str], bool] = lambda _text: True
) -> list[str]:
    """
    Return a list that gets every statement from here on, or those that are counted; each COMMIT is one, too.
    """
    sent: list[str] = []
    execute, commit = AsyncConnection.execute, AsyncConnection.commit

    async def noting(connection: AsyncConnection[Any], query: Any, *rest: Any, **options: Any) -> Any:
        text = query.as_string(connection) if isinstance(query, sql.Composable) else str(query)
        if is_counted(text):
            sent.append(text)
        return await execute(connection, query, *rest, **options)

    async def noting_commit(connection: AsyncConnection[Any]) -> None:
        if is_counted("COMMIT"):
            sent.append("COMMIT")
        await commit(connection)

    monkeypatch.setattr(AsyncConnection, "execute", noting)
    monkeypatch.setattr(AsyncConnection, "commit", noting_commit)
    return sent
