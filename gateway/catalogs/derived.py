# SPDX-License-Identifier: Apache-2.0
"""
Fills columns and rows that older versions did not write: skeletons of names, places of tables, places of catalogs.

All three follow from the rows and the log, so filling them twice changes nothing. A process does this when it starts,
before it serves. Looks are computed again when their rules or Unicode's data have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import psycopg

from gateway.catalogs.catalog_places import LOCATION, LOCK, place_parameters
from gateway.catalogs.table_places import expected_places, place_digests
from gateway.confusables import SKELETONS_VERSION, skeleton_columns
from gateway.errors import BadRequestError
from ledger.format.entry import parse_entry
from ledger.format.events import CatalogCreated, from_data
from ledger.store.queries import load_queries

BATCH_ROWS: Final = 2_000

_QUERIES: Final = load_queries("gateway", "derived.sql")

_Row: TypeAlias = tuple[Any, ...]


def fill_derived_rows(connection: psycopg.Connection) -> None:
    """
    Fill in skeletons and places where they are missing or out of date. `connection` is the owner's, in autocommit mode.
    """
    _fill(connection, "namespaces_without_looks", "fill_namespace_looks", _namespace_look)
    _fill(connection, "tables_without_looks", "fill_table_looks", _table_look)
    _fill(connection, "tables_without_places", "fill_table_places", _expected)
    _fill_catalog_places(connection)


def _fill(connection: psycopg.Connection, find: str, fill: str, derive: Callable[[_Row], dict[str, object]]) -> None:
    """Fill the rows that `find` returns, one transaction per batch; rows that an append locks come later."""
    while True:
        with connection.transaction():
            bounds = {"version": SKELETONS_VERSION, "limit": BATCH_ROWS}
            rows = connection.execute(_QUERIES[find], bounds).fetchall()
            if rows:
                connection.cursor().executemany(_QUERIES[fill], [derive(row) for row in rows])
        if not rows:
            return


def _namespace_look(row: _Row) -> dict[str, object]:
    log_id, alias, namespace = row
    return {"log_id": log_id, "alias": alias, "namespace": namespace, **skeleton_columns(*namespace)}


def _table_look(row: _Row) -> dict[str, object]:
    log_id, alias, namespace, name = row
    return {
        "log_id": log_id,
        "alias": alias,
        "namespace": namespace,
        "name": name,
        **skeleton_columns(*namespace, name),
    }


def _expected(row: _Row) -> dict[str, object]:
    log_id, alias, namespace, name, metadata_location = row
    names = {"log_id": log_id, "alias": alias, "namespace": namespace, "name": name}
    return {**names, **place_digests(expected_places(metadata_location))}


def _fill_catalog_places(connection: psycopg.Connection) -> None:
    """
    The catalog that was recorded first holds the place; later ones get a row, too.

    Usually there is nothing to fill, and then no lock is taken: a start must not wait for a claim. A claim is stored in
    the transaction that appends its catalog, so none is missing only for a moment.
    """
    if connection.execute(_QUERIES["catalogs_without_places"]).fetchone() is None:
        return
    with connection.transaction():
        connection.execute(_QUERIES["lock_places"], {"lock": LOCK})
        rows: Sequence[_Row] = connection.execute(_QUERIES["catalogs_without_places"]).fetchall()
        entries = [(log_id, parse_entry(bytes(entry))) for log_id, entry in rows]
        for log_id, entry in sorted(entries, key=lambda each: (each[1].recorded_at, each[0], each[1].index)):
            created = from_data(CatalogCreated, entry.data)
            if LOCATION not in created.options:
                continue
            try:
                parameters = place_parameters(created.id, created.options[LOCATION])
            except BadRequestError:
                continue  # not a place: nothing can be below it
            connection.execute(_QUERIES["fill_catalog_place"], {"log_id": log_id, **parameters})
