"""
Rights on Apache AGE: none for PUBLIC, and for our roles the functions that their queries call.

Guarantee: once `make_age` has returned, PUBLIC may use nothing in `ag_catalog` of this database, and our roles may use
what `projections/graph/age_functions.py` lists, and no more. It runs at every start, so it covers a database that was
restored without its grants, one whose extension was updated, and one in which somebody has granted rights again.

Only a superuser and the owner of the extension can take rights from PUBLIC. A REVOKE by anybody else changes nothing
and is no error in PostgreSQL, so the rights are read back, and what is still open is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, LiteralString

import psycopg
from psycopg import sql

from lakeproof.errors import ProvisionError
from ledger.store.queries import load_queries
from ledger.store.roles import Roles
from projections.graph.age_functions import PROJECTOR_FUNCTIONS, PROJECTOR_TYPES, READER_FUNCTIONS

_QUERIES: Final = load_queries("lakeproof", "age_rights.sql")
_PUBLIC: Final = "PUBLIC"

Kind = Literal["ROUTINE", "TYPE", "TABLE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grantable:
    """Something in AGE's schema that can be granted; `name` is PostgreSQL's own rendering, quoted where it must be."""

    kind: Kind
    name: str
    owner: str
    holders: Collection[str]


def make_age(connection: psycopg.Connection, roles: Roles) -> None:
    """
    Make the extension if it is not there, and restrict it, in one transaction: it is open to nobody in between.

    Raises:
        ProvisionError: if this user may not take rights from PUBLIC, or not give them to our roles.
        psycopg.Error: if the extension cannot be made.
    """
    with connection.transaction():
        connection.execute("CREATE EXTENSION IF NOT EXISTS age")
        connection.execute(_QUERIES["path"])
        lists = {
            roles.reader: frozenset(READER_FUNCTIONS),
            roles.projector: frozenset((*PROJECTOR_FUNCTIONS, *PROJECTOR_TYPES)),
        }
        for role in lists:
            connection.execute(sql.SQL("GRANT USAGE ON SCHEMA ag_catalog TO {}").format(sql.Identifier(role)))
        for thing in _grantables(connection):
            if _PUBLIC in thing.holders:
                _change(connection, "REVOKE ALL ON {} {} FROM {}", thing, sql.SQL(_PUBLIC))
            for role, functions in lists.items():
                if thing.name in functions and role not in thing.holders:
                    _change(connection, "GRANT ALL ON {} {} TO {}", thing, sql.Identifier(role))
                elif thing.name not in functions and role in thing.holders:
                    _change(connection, "REVOKE ALL ON {} {} FROM {}", thing, sql.Identifier(role))
        _check(_grantables(connection), lists)


def _check(grantables: Collection[_Grantable], lists: dict[str, frozenset[str]]) -> None:
    """
    Check that the rights are what they were made.

    A function of a list that this version of AGE does not have is called by no query on it.
    """
    wrong = [
        each
        for each in grantables
        if _PUBLIC in each.holders
        or any((each.name in functions) != (role in each.holders) for role, functions in lists.items())
    ]
    if wrong:
        first = wrong[0]
        raise ProvisionError(
            f"{len(wrong)} functions and types of Apache AGE keep rights in this database that this user may not "
            f"change, such as {first.name} of {first.owner}; with them any role could read any graph, or end the "
            f"server: let LAKEPROOF_DSN name a superuser, or {first.owner}"
        )


def _grantables(connection: psycopg.Connection) -> list[_Grantable]:
    rows = connection.execute(_QUERIES["things"]).fetchall()
    return [_Grantable(kind=kind, name=name, owner=owner, holders=holders) for kind, name, owner, holders in rows]


def _change(connection: psycopg.Connection, statement: LiteralString, thing: _Grantable, role: sql.Composable) -> None:
    name = sql.SQL(thing.name)
    connection.execute(sql.SQL(statement).format(sql.SQL(thing.kind), name, role))
