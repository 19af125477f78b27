# SPDX-License-Identifier: Apache-2.0
"""
What a process keeps of the tables that it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.catalogs.catalog import Loaded
from gateway.commit.known_tables import PAUSE_S, TABLES_MAX, KnownTables
from gateway.identifiers import Target

ORDERS = Target(alias="lake", namespace=("sales",), name="orders")
LEFT = Loaded(namespace_exists=True, metadata_location="file:///w/1.json", metadata_sha256="ab", places=(b"place",))
LOG = 1


@dataclass(slots=True)
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_row_of_a_table_is_as_the_last_commit_has_left_it() -> None:
    clock = Clock()
    tables = KnownTables(clock)
    assert tables.get(LOG, ORDERS) is None
    tables.left(LOG, ORDERS, LEFT)
    clock.now_s += 1
    tables.left(LOG, ORDERS, replace(LEFT, metadata_location="file:///w/2.json"))
    known = tables.get(LOG, ORDERS)
    assert known is not None
    assert known.row is not None
    pointer = known.row.pointer
    assert pointer is not None
    assert (pointer.metadata_location, pointer.places, known.since_s) == ("file:///w/2.json", (b"place",), 101.0)
    assert tables.get(LOG + 1, ORDERS) is None, "of another log"


def test_a_table_that_has_no_file_is_not_known() -> None:
    tables = KnownTables()
    tables.left(LOG, ORDERS, Loaded(namespace_exists=True))
    assert tables.get(LOG, ORDERS) is None


def test_a_table_that_was_tried_in_vain_is_not_known_for_a_while() -> None:
    clock = Clock()
    tables = KnownTables(clock)
    tables.left(LOG, ORDERS, LEFT)
    tables.tried_in_vain(LOG, ORDERS)
    clock.now_s += PAUSE_S / 2
    tables.left(LOG, ORDERS, LEFT)
    assert tables.get(LOG, ORDERS) is None
    clock.now_s += PAUSE_S / 2
    tables.left(LOG, ORDERS, LEFT)
    assert tables.get(LOG, ORDERS) is not None


def test_of_many_tables_those_that_were_changed_last_are_known() -> None:
    tables = KnownTables()
    for log_id in range(TABLES_MAX + 1):
        tables.left(log_id, ORDERS, LEFT)
    assert tables.get(0, ORDERS) is None
    assert tables.get(1, ORDERS) is not None
