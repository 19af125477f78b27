"""Databases for tests: each is cloned from one template."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import sql

from lakeproof.provision import Provisioned, provision
from ledger.store.queries import load_queries

TEMPLATE = "lakeproof_template"
LOGIN_PASSWORD = "a throw-away server's"
CLONE: Final = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
"""In memory, copying files takes two thirds of the processor time that copying through the write-ahead log does."""
CONFIRM: Final = load_queries("ledger.store", "signing.sql")["confirm"]


def provision_template(dsn: str) -> Provisioned:
    """Bring the template database, in which AGE is already created, to where every test begins."""
    return provision(dsn, login_password=LOGIN_PASSWORD)


def confirm_logs(database: str) -> None:
    """Do what the signer does in a database that is cloned: what its template says of itself does not hold in it."""
    with psycopg.connect(database) as owner:
        sizes: dict[int, int] = dict(owner.execute("SELECT log_id, size FROM ledger.heads").fetchall())
        owner.execute(CONFIRM, {"log_ids": list(sizes), "sizes": list(sizes.values())})
