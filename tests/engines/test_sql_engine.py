# SPDX-License-Identifier: Apache-2.0
"""
The process of an engine: rows and errors come back as such, and one that ends says why.
"""

from __future__ import annotations

import pytest

from testkit.engines.sql_engine import SqlEngine, StatementError, start_engine


async def test_rows_and_errors_come_back_and_an_error_ends_nothing(duckdb: SqlEngine) -> None:
    assert await duckdb.run("SELECT 1, 'a' UNION ALL SELECT 2, NULL") == [[1, "a"], [2, None]]
    with pytest.raises(StatementError, match="Table with name nothing does not exist"):
        await duckdb.run("SELECT * FROM nothing")
    first, second = await duckdb.race(["SELECT 1", "no statement", "SELECT 2"], ["SELECT 3"])
    assert (first[0], first[2], second) == ([[1]], [[2]], [[[3]]])
    assert isinstance(first[1], StatementError)
    await duckdb.run("CREATE TABLE kept AS SELECT 4 AS id")
    assert await duckdb.run("SELECT id FROM kept") == [[4]]


async def test_an_engine_that_ends_says_why() -> None:
    with start_engine("testkit.engines.nowhere", {}) as engine, pytest.raises(AssertionError, match="No module named"):
        await engine.run("SELECT 1")
    assert engine.process.returncode == 1
