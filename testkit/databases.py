# SPDX-License-Identifier: Apache-2.0
"""Databases for tests: each is cloned from one template."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import sql

from lakeproof.provision import Provisioned, provision
from ledger.store.queries import load_queries

TEMPLATE = "lakeproof_template"
LOGIN_PASSWORD = "a throw-away server's"
CLONE: Final = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
"""In memory, copying files takes two thirds of the processor time that copying through the write-ahead log does."""
OID: Final = 4_000_000_000
"""The number of every test's own database, which no server gives by itself: there the template's logs are confirmed."""
CONFIRM: Final = load_queries("ledger.store", "signing.sql")["confirm"]


@contextmanager
def dropping_readers(admin: psycopg.Connection) -> Iterator[None]:
    """
    Drop the roles of tenants that are created meanwhile, and whose database is dropped meanwhile.

    Roles belong to the server. A connection that takes a role reads all memberships of its login: with the tenants of
    six hundred tests, it takes three times as long as with none.
    """
    row = admin.execute("SELECT max(oid) FROM pg_roles").fetchone()
    yield
    readers = admin.execute(
        "SELECT rolname FROM pg_roles AS r WHERE oid > %s AND rolname ~ '^lp_[0-9a-f]{8}_t_' AND NOT EXISTS "
        "(SELECT FROM pg_shdepend AS d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = r.oid)",
        row,
    ).fetchall()
    if readers:
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.SQL(", ").join(sql.Identifier(name) for (name,) in readers)))


def provision_template(dsn: str) -> Provisioned:
    """Bring the template database, in which AGE is already created, to where every test begins."""
    return provision(dsn, login_password=LOGIN_PASSWORD)


def confirm_logs(database: str) -> None:
    """Do what the signer does in a database that is cloned: what its template says of itself does not hold in it."""
    with psycopg.connect(database) as owner:
        sizes: dict[int, int] = dict(owner.execute("SELECT log_id, size FROM ledger.heads").fetchall())
        owner.execute(CONFIRM, {"log_ids": list(sizes), "sizes": list(sizes.values())})


def confirm_logs_of_clones(template: str) -> None:
    """
    Do what the signer would do in each clone with the number `OID`, once, in the database they are cloned from.

    A confirmation names the files of one database; in the template, and in a clone with another number, it holds not.
    Whoever connects first also leaves PostgreSQL's cache of the catalog, which a clone takes along.
    """
    with psycopg.connect(template) as owner:
        sizes: dict[int, int] = dict(owner.execute("SELECT log_id, size FROM ledger.heads").fetchall())
        owner.execute(CONFIRM, {"log_ids": list(sizes), "sizes": list(sizes.values())})
        # In the same transaction: a row that another one wrote is no confirmation.
        owner.execute(
            "UPDATE ledger.confirmations SET entries_file = regexp_replace(entries_file, '^base/[0-9]+/', %s)",
            (f"base/{OID}/",),
        )
