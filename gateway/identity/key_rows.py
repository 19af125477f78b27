"""
The guarded rows behind API keys, and the actors of identities.

A key's row is written by a guard in the group of its `key.created` and removed in that of its `key.revoked`. An actor
is minted once for each identity of a tenant, before anything is appended in its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from psycopg.errors import ForeignKeyViolation

from gateway.identity.api_keys import ApiKeyText
from ledger.errors import FormatError, NoSuchLogError
from ledger.guards import Guard, GuardCall
from ledger.queries import load_queries
from ledger.read import Connection

ACTOR_SIZE_BYTES: Final = 16

_QUERIES: Final = load_queries("gateway", "identity.sql")

KEY_GUARDS: Final = (
    Guard(name="key.create", statements=(_QUERIES["key_create"],)),
    Guard(name="key.revoke", statements=(_QUERIES["key_revoke"],)),
)
"""What the Appender's registry needs, beside the log's own, for keys to be made and revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A key in force. `tenant` is None for the system log, `identity` None once it was erased: both may do nothing."""

    log_id: int
    tenant: UUID | None
    key_id: str
    actor: str
    hash: str = field(repr=False)
    identity: str | None


def create_guard(key_id: str, key: ApiKeyText, *, stored_hash: str, actor: str) -> GuardCall:
    """
    Return the guard that makes a key's row; it holds if neither its id nor its prefix is taken.
    """
    return GuardCall("key.create", {"key_id": key_id, "prefix": key.prefix, "hash": stored_hash, "actor": actor})


def revoke_guard(key_id: str) -> GuardCall:
    """
    Return the guard that removes a key's row.
    """
    return GuardCall("key.revoke", {"key_id": key_id})


async def find_key(connection: Connection, prefix: str) -> KeyRow | None:
    """
    Return the row of the key with that prefix, of whatever tenant. The connection works as the gateway's role.
    """
    row = await (await connection.execute(_QUERIES["key_by_prefix"], {"prefix": prefix})).fetchone()
    if row is None:
        return None
    log_id, tenant, key_id, actor, stored_hash, identity = row
    return KeyRow(log_id=log_id, tenant=tenant, key_id=key_id, actor=actor, hash=stored_hash, identity=identity)


async def actor_of(connection: Connection, log_id: int, identity: str, *, random: Callable[[int], bytes]) -> str:
    """
    Return the actor of an identity, minting one at its first use. The connection works as the appender's role.

    Two callers who mint for the same identity at once get the same actor.

    Raises:
        NoSuchLogError: if there is no such log.
        FormatError: if the identity was erased while it was looked up.
    """
    minted = {"log_id": log_id, "actor": random(ACTOR_SIZE_BYTES).hex(), "identity": identity}
    try:
        await connection.execute(_QUERIES["mint_actor"], minted)
    except ForeignKeyViolation as error:
        raise NoSuchLogError(f"log {log_id}: expected a log of this id, found none") from error
    row = await (await connection.execute(_QUERIES["actor_of"], {"log_id": log_id, "identity": identity})).fetchone()
    if row is None:
        raise FormatError("actor of an identity", expected="one that was just minted", found=None)
    return str(row[0])
