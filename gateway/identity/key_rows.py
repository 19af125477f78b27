# SPDX-License-Identifier: Apache-2.0
"""
The rows of API keys, and the actors of identities.

A guard in the group of a `key.created` writes a key's row, one in the group of its `key.revoked` removes it, and its
keyed hash with it. An actor is made once, before anything is appended in its name.

An identity has its own actor, for keys that the operator or the identity itself has issued. Another issuer of a key
knows its secret and could act with it. So such a key has a different actor: that of the pair of identity and issuer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg.errors import ForeignKeyViolation

from gateway.identity.api_keys import ApiKeyText
from ledger.errors import FormatError, NoSuchLogError
from ledger.format.entry import parse_entry
from ledger.format.guards import Guard, GuardCall
from ledger.store.queries import load_queries
from ledger.store.session import Connection

ACTOR_SIZE_BYTES: Final = 16

_QUERIES: Final = load_queries("gateway", "identity.sql")

KEY_GUARDS: Final = (
    Guard(name="key.create", statements=(_QUERIES["key_create"],)),
    Guard(name="key.mac", statements=(_QUERIES["key_mac"],)),
    Guard(name="key.revoke", statements=(_QUERIES["key_revoke"],)),
)
"""Guards for the appender's registry, to create and revoke keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """
    A key in force. `tenant` is None for the system log, whose keys are permitted nothing.

    `hash` is the argon2id hash; `mac` is the keyed one, None if there is none under the given secret.
    """

    log_id: int
    tenant: UUID | None
    key_id: str
    actor: str
    hash: str = field(repr=False)
    mac: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """An actor of an identity; `issuer` is the actor who issues its keys, None for the identity's own actor."""

    actor: str
    issuer: str | None


def create_guard(key_id: str, key: ApiKeyText, *, stored_hash: str, actor: str) -> GuardCall:
    """
    Return the guard that writes a key's row; it holds if neither its id nor its prefix is taken.
    """
    return GuardCall("key.create", {"key_id": key_id, "prefix": key.prefix, "hash": stored_hash, "actor": actor})


def mac_guard(key_id: str, key: ApiKeyText, *, secret_id: str, mac: bytes) -> GuardCall:
    """
    Return the guard that stores the keyed hash of a key whose row an earlier guard of the group writes.

    It is not replayed: the log has no hash.
    """
    return GuardCall("key.mac", {"key_id": key_id, "prefix": key.prefix, "secret_id": secret_id, "mac": mac})


def revoke_guard(key_id: str) -> GuardCall:
    """
    Return the guard that removes a key's row.
    """
    return GuardCall("key.revoke", {"key_id": key_id})


async def find_keys(connection: Connection, prefixes: Collection[str], *, secret_id: str) -> Mapping[str, KeyRow]:
    """
    Return the rows of the keys with those prefixes, by prefix, of all tenants.

    The connection works as the gateway's role.
    """
    parameters = {"prefixes": list(prefixes), "secret_id": secret_id}
    rows = await (await connection.execute(_QUERIES["keys_by_prefix"], parameters)).fetchall()
    return {
        prefix: KeyRow(
            log_id=log_id,
            tenant=tenant,
            key_id=key_id,
            actor=actor,
            hash=stored_hash,
            mac=None if mac is None else bytes(mac),
        )
        for prefix, log_id, tenant, key_id, actor, stored_hash, mac in rows
    }


async def keep_mac(connection: Connection, row: KeyRow, *, secret_id: str, mac: bytes) -> None:
    """
    Store the keyed hash of a key whose argon2id hash was checked. The connection works as the gateway's role.
    """
    kept = {"log_id": row.log_id, "key_id": row.key_id, "hash": row.hash, "secret_id": secret_id, "mac": mac}
    await connection.execute(_QUERIES["keep_mac"], kept)


async def actor_for(
    connection: Connection, log_id: int, identity: str, *, issuer: str | None, random: Callable[[int], bytes]
) -> Actor:
    """
    Return the actor of a key that `issuer` issues to an identity (None: the operator), making it at its first use.

    A key that an identity issues to itself has the identity's own actor. Two callers who make the same actor at once
    get the same one. The connection works as the appender's role.

    Raises:
        NoSuchLogError: if there is no such log.
        FormatError: if the identity was erased while it was looked up.
    """
    if issuer is not None:
        own = await person_of(connection, log_id, issuer)
        if own is not None and own[0] == identity:
            return Actor(actor=issuer, issuer=own[1])
    minted = {"actor": random(ACTOR_SIZE_BYTES).hex(), "identity": identity, "issuer": issuer}
    try:
        await connection.execute(_QUERIES["mint_actor"], {"log_id": log_id, **minted})
    except ForeignKeyViolation as error:
        raise NoSuchLogError(f"log {log_id}: expected a log of this id, found none") from error
    row = await _one(connection, "actor_of", log_id=log_id, identity=identity, issuer=issuer)
    if row is None:
        raise FormatError("actor of an identity", expected="one that was just minted", found=None)
    return Actor(actor=str(row[0]), issuer=issuer)


async def find_actor(connection: Connection, log_id: int, identity: str, *, issuer: str | None) -> str | None:
    """
    Return the actor of an identity under an issuer, None if it has none. The connection may read identities.
    """
    row = await _one(connection, "actor_of", log_id=log_id, identity=identity, issuer=issuer)
    return None if row is None else row[0]


async def person_of(connection: Connection, log_id: int, actor: str) -> tuple[str, str | None] | None:
    """
    Return the identity behind an actor, and the actor who issues its keys (None: the identity's own); None if there is
    no identity behind it. The connection may read identities.
    """
    row = await _one(connection, "identity_of", log_id=log_id, actor=actor)
    return None if row is None else (row[0], row[1])


async def identities_of(connection: Connection, log_id: int, actors: Collection[str]) -> dict[str, str]:
    """
    Return the identities behind actors, of those that have one. The connection may read identities.
    """
    bounds = {"log_id": log_id, "actors": list(actors)}
    return dict(await (await connection.execute(_QUERIES["identities_of"], bounds)).fetchall())


async def last_erasure(connection: Connection, log_id: int) -> datetime | None:
    """
    Return when the newest erasure of a person was recorded in a log, None if none was. The connection may read entries.

    Raises:
        FormatError: if that entry is damaged.
    """
    row = await (await connection.execute(_QUERIES["last_erasure"], {"log_id": log_id})).fetchone()
    return None if row is None else parse_entry(bytes(row[0])).recorded_at


async def _one(connection: Connection, query: str, **parameters: object) -> tuple[str, ...] | None:
    row: tuple[str, ...] | None = await (await connection.execute(_QUERIES[query], parameters)).fetchone()
    return row
