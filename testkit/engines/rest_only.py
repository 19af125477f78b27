# SPDX-License-Identifier: Apache-2.0
"""
A plugin for PyIceberg's own integration tests: those run that need the catalog of PYICEBERG_TEST_CATALOG and no other.

They expect what a script of PyIceberg's project has made in its own image: a namespace, and a table with some history.
"""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

CATALOGS: Final = frozenset({"session_catalog", "rest_test_catalog", "catalog"})
HISTORY: Final = 5
OTHERS: Final = frozenset(
    {
        "spark",
        "hive_catalog",
        "session_catalog_hive",
        "memory_catalog",
        "rest_catalog",
        "sqlite_catalog_file",
        "sqlite_catalog_memory",
    }
)


def pytest_sessionstart() -> None:
    """Make the namespace and the table."""
    catalog = load_catalog(os.environ["PYICEBERG_TEST_CATALOG"])
    catalog.create_namespace("default")
    rows = pa.table({"number": pa.array([1], pa.int32())})
    table = catalog.create_table("default.test_table_snapshot_operations", rows.schema)
    for _ in range(HISTORY):
        table.append(rows)


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Keep what asks for one of `CATALOGS` and none of `OTHERS`, by itself or through a parameter."""
    items[:] = [item for item in items if (asked := _asked(item)) & CATALOGS and not asked & OTHERS]


def _asked(item: pytest.Function) -> set[str]:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {*item.fixturenames, *(str(getattr(parameter, "name", "")) for parameter in parameters)}
