# SPDX-License-Identifier: Apache-2.0
"""A guard's statement that fails unless it affects one row does otherwise what the statement alone does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from gateway.catalogs.builtin import GUARDS as CATALOG_GUARDS
from gateway.guard_replay import REPLAY_GUARDS
from gateway.identity.key_rows import KEY_GUARDS
from ledger.append.appender import CORE_GUARDS
from ledger.append.must_hold import must_hold
from spark_detect.marks import GUARDS as SCAN_GUARDS

GUARDS = (*CORE_GUARDS, *KEY_GUARDS, *CATALOG_GUARDS, *REPLAY_GUARDS, *SCAN_GUARDS)


@pytest.fixture
def table(module_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection with a table `t` of the numbers 1 to 3, all of kind `a` but the last."""
    with psycopg.connect(module_database) as connection:
        connection.execute("CREATE TEMPORARY TABLE t (n integer PRIMARY KEY, kind text)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b;(')")
        connection.execute("SAVEPOINT filled")
        yield connection
        connection.rollback()


STATEMENTS = {
    "SELECT FROM t WHERE kind = %(kind)s": {"a": 2, "b;(": 1, "none": 0},
    "SELECT n FROM t WHERE kind = %(kind)s ORDER BY n LIMIT 1 FOR UPDATE": {"a": 1, "b;(": 1, "none": 0},
    "UPDATE t SET kind = 'c' WHERE kind = %(kind)s": {"a": 2, "b;(": 1, "none": 0},
    "DELETE FROM t WHERE kind = %(kind)s": {"a": 2, "b;(": 1, "none": 0},
    "INSERT INTO t SELECT 10 + n, 'x''(' FROM t WHERE kind = %(kind)s": {"a": 2, "b;(": 1, "none": 0},
    "INSERT INTO t VALUES (4, %(kind)s)": {"a": 1},
    "INSERT INTO t VALUES (1, %(kind)s) ON CONFLICT DO NOTHING": {"a": 0},
    "INSERT INTO t VALUES (1, %(kind)s) ON CONFLICT (n) DO UPDATE SET kind = 'd' RETURNING n": {"a": 1},
    "WITH u AS (UPDATE t SET kind = 'c' WHERE kind = %(kind)s RETURNING n)\nSELECT FROM u LIMIT 1": {"a": 1, "none": 0},
    "WITH u AS (SELECT n FROM t WHERE kind = %(kind)s)\nDELETE FROM t USING u WHERE t.n = u.n": {"a": 2, "b;(": 1},
    'SELECT "n" FROM t -- of a kind (any\nWHERE kind = %(kind)s': {"b;(": 1, "a": 2},
    "SELECT 6 / (n - 3) FROM t WHERE kind = %(kind)s": {"a": 2},
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_it_changes_the_same_rows_and_fails_unless_it_affects_one(
    table: psycopg.Connection[Any], statement: str
) -> None:
    required = must_hold(statement)
    assert required is not None
    for kind, affected in STATEMENTS[statement].items():
        table.execute("ROLLBACK TO SAVEPOINT filled")
        assert table.execute(statement.encode(), {"kind": kind}).rowcount == affected
        alone = table.execute("SELECT n, kind FROM t ORDER BY n").fetchall()
        table.execute("ROLLBACK TO SAVEPOINT filled")
        if affected == 1:
            table.execute(required.encode(), {"kind": kind})
            assert table.execute("SELECT n, kind FROM t ORDER BY n").fetchall() == alone
        else:
            with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="a guard of a group does not hold"):
                table.execute(required.encode(), {"kind": kind})


@pytest.mark.parametrize("statement", ["SELECT 6 / (n - 3) FROM t WHERE n = 3", "SELECT 6 / %(zero)s", "SELECT 1 / 0"])
def test_what_it_selects_is_computed_though_nobody_reads_it(table: psycopg.Connection[Any], statement: str) -> None:
    required = must_hold(statement)
    assert required is not None
    with pytest.raises(psycopg.errors.DivisionByZero):
        table.execute(required.encode(), {"zero": 0})


def test_no_more_rights_are_needed_than_for_the_statement_alone(table: psycopg.Connection[Any]) -> None:
    table.execute("CREATE ROLE must_hold_writer")
    table.execute("GRANT INSERT ON t TO must_hold_writer")
    table.execute("SET ROLE must_hold_writer")
    required = must_hold("INSERT INTO t VALUES (9, %(kind)s)")
    assert required is not None
    table.execute(required.encode(), {"kind": "a"})
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        table.execute("SELECT FROM t")


@pytest.mark.parametrize(
    "statement",
    [
        "TABLE t",
        "VALUES (1)",
        "MERGE INTO t USING t AS s ON s.n = t.n WHEN MATCHED THEN DELETE",
        "WITH s AS (SELECT 1) MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE",
        "EXPLAIN SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT $$;$$",
        r"SELECT E'\''",
        "SELECT /* ' */ 1",
        "SELECT (1",
        "SELECT 1)",
        "",
        "SELECT FROM lakeproof_guard",
    ],
)
def test_a_statement_of_another_form_has_none(statement: str) -> None:
    assert must_hold(statement) is None


def test_every_guard_of_the_project_has_one() -> None:
    statements = [(guard.name, statement) for guard in GUARDS for statement in guard.statements]
    assert len(statements) > 30
    assert [name for name, statement in statements if must_hold(statement) is None] == []
