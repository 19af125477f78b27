# SPDX-License-Identifier: Apache-2.0
"""Catalogs and engines for the tests of this folder; those of one module share them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

import pytest
import pytest_asyncio

from lakeproof.services import Services
from testkit.engines.duckdb_program import start_duckdb
from testkit.engines.served_catalogs import ServedCatalog, serve_catalogs
from testkit.engines.spark_program import start_spark
from testkit.engines.sql_engine import SqlEngine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def catalogs(module_services: Services) -> AsyncIterator[Mapping[str, ServedCatalog]]:
    """Both catalogs, by alias."""
    async with serve_catalogs(module_services) as served:
        yield served


@pytest.fixture(scope="module")
def spark(catalogs: Mapping[str, ServedCatalog]) -> Iterator[SqlEngine]:
    """One Spark with both catalogs, configured as the page says."""
    settings: dict[str, str] = {}
    for catalog in catalogs.values():
        settings |= dict(line.split() for line in catalog.configuration("Spark", "properties").splitlines())
    with start_spark(settings) as engine:
        yield engine


@pytest.fixture(scope="module")
def duckdb() -> Iterator[SqlEngine]:
    """One DuckDB without a catalog."""
    with start_duckdb() as engine:
        yield engine
