# SPDX-License-Identifier: Apache-2.0
"""
Removes a person's login from dead letters, the outbox, and the recorded answers of hosts.

None of these says whom it is about, so the login is searched for (`ledger.erasing.redaction`). A third-party message
that mentions it is deleted: nobody knows what else it says about that person. A dead letter of an entry stays, with its
reason rewritten; so does an outbox message, with its payload rewritten, since later messages wait for it.
"""

from __future__ import annotations

from typing import Any, Final

from ledger.erasing.redaction import LoginMatcher
from ledger.store.queries import load_queries
from ledger.store.session import Connection

PAGE: Final = 20
"""Rows read at a time: each may be as large as a message can be."""
TABLES: Final = ("streams.dead_letters", "streams.outbox", "streams.hosts")
"""Tables whose files hold the login until they are rewritten."""

_QUERIES: Final = load_queries("streams", "erasure.sql")


async def erase_login(connection: Connection, log_id: int, mention: LoginMatcher) -> int:
    """
    Remove a login from the stored messages of a log; return how many had it. `connection` is in autocommit mode.
    """
    return (
        await _erase_dead(connection, log_id, mention)
        + await _erase_waiting(connection, log_id, mention)
        + await _erase_answers(connection, log_id, mention)
    )


async def _erase_dead(connection: Connection, log_id: int, mention: LoginMatcher) -> int:
    erased, after = 0, ("", "")
    while page := await _rows(connection, "dead", log_id=log_id, source=after[0], id=after[1]):
        for source, id_, index, key, payload, reason in page:
            which = {"log_id": log_id, "source": source, "id": id_}
            if index is None:
                kept = (id_, key, bytes(payload), reason)
                if any(mention.matches(each) for each in kept):
                    erased += (await connection.execute(_QUERIES["delete_dead"], which)).rowcount
            elif mention.matches(reason):
                rewritten = {**which, "reason": mention.redact(reason)}
                erased += (await connection.execute(_QUERIES["rewrite_dead"], rewritten)).rowcount
        after = (page[-1][0], page[-1][1])
    return erased


async def _erase_waiting(connection: Connection, log_id: int, mention: LoginMatcher) -> int:
    erased, position = 0, -1
    while page := await _rows(connection, "waiting", log_id=log_id, position=position):
        for position, payload in page:
            if mention.matches(bytes(payload)):
                rewritten = {"log_id": log_id, "position": position}
                rewritten["payload"] = mention.redact_json(bytes(payload))
                erased += (await connection.execute(_QUERIES["rewrite_waiting"], rewritten)).rowcount
    return erased


async def _erase_answers(connection: Connection, log_id: int, mention: LoginMatcher) -> int:
    erased = 0
    for handler, host, reason in await _rows(connection, "answers", log_id=log_id):
        if mention.matches(reason):
            rewritten = {"log_id": log_id, "handler": handler, "host": host, "reason": mention.redact(reason)}
            erased += (await connection.execute(_QUERIES["rewrite_answer"], rewritten)).rowcount
    return erased


async def _rows(connection: Connection, query: str, **which: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(_QUERIES[query], {**which, "limit": PAGE})).fetchall()
