# SPDX-License-Identifier: Apache-2.0
"""What a bench that kills processes checks afterwards: every way to lose an acknowledged commit is found."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from testkit.gateway.acknowledged import Acknowledged, FoundTable, Settled, check_acknowledged, check_files

ACKNOWLEDGED = [
    Acknowledged(table="t0", writer="w0", number=1, location="file:///t0/1"),
    Acknowledged(table="t0", writer="w1", number=1, location="file:///t0/2"),
    Acknowledged(table="t1", writer="w0", number=2, location="file:///t1/1"),
    Acknowledged(table="t0", writer="w0", number=4, location="file:///t0/4"),
]
SENT = {("t0", "w0"): 5, ("t0", "w1"): 1, ("t1", "w0"): 3}
SETTLED = [
    Settled(table=table, location=f"file:///{table}/{number}", sha256="")
    for table, number in (("t0", 1), ("t0", 2), ("t1", 1), ("t0", 4), ("t0", 5))
]
"""The last one was not acknowledged: its answer was lost."""
TABLES = {
    "t0": FoundTable(location="file:///t0/5", properties={"w0": "5", "w1": "1"}),
    "t1": FoundTable(location="file:///t1/1", properties={"w0": "2"}),
}


def faults(
    acknowledged: list[Acknowledged] = ACKNOWLEDGED,
    settled: list[Settled] = SETTLED,
    tables: dict[str, FoundTable] = TABLES,
) -> list[str]:
    return check_acknowledged(acknowledged, SENT, settled=settled, tables=tables)


def test_acknowledged_commits_that_are_in_log_and_table_pass() -> None:
    assert faults() == []


def test_a_commit_without_an_answer_may_be_missing() -> None:
    at_4 = replace(TABLES["t0"], location="file:///t0/4", properties={"w0": "4", "w1": "1"})
    assert faults(settled=SETTLED[:-1], tables={**TABLES, "t0": at_4}) == []


def test_an_acknowledged_commit_that_is_not_in_the_log_is_found() -> None:
    assert faults(settled=SETTLED[1:]) == ["t0: commit 1 of w0 was acknowledged and is not in the log"]


def test_a_commit_that_is_in_the_log_twice_is_found() -> None:
    assert faults(settled=[SETTLED[0], *SETTLED]) == [
        "t0: the log has file:///t0/1 2 times",
        "t0: the log has commit 1 of w0 behind its 1",
    ]


def test_two_commits_with_one_answer_are_found() -> None:
    twice = [*ACKNOWLEDGED[:2], replace(ACKNOWLEDGED[1], writer="w0", number=3), *ACKNOWLEDGED[2:]]
    assert "t0: 2 commits were answered with file:///t0/2" in faults(acknowledged=twice)


def test_commits_of_a_writer_in_another_order_are_found() -> None:
    exchanged = [SETTLED[3], *SETTLED[1:3], SETTLED[0], SETTLED[4]]
    assert faults(settled=exchanged) == ["t0: the log has commit 1 of w0 behind its 4"]


def test_a_table_that_is_not_where_the_log_left_it_is_found() -> None:
    elsewhere = {**TABLES, "t1": replace(TABLES["t1"], location="file:///t1/0")}
    (fault,) = faults(tables=elsewhere)
    assert fault == "t1: the newest outcome in the log is file:///t1/1, the table is at file:///t1/0"


def test_a_table_that_has_lost_a_commit_is_found() -> None:
    lost = {**TABLES, "t0": replace(TABLES["t0"], properties={"w0": "5"})}
    (fault,) = faults(tables=lost)
    assert fault == "t0: w1 sent up to 1 and was acknowledged up to 1, the table has -1"


def test_a_table_with_a_commit_that_nobody_sent_is_found() -> None:
    more = {**TABLES, "t1": replace(TABLES["t1"], properties={"w0": "9"})}
    (fault,) = faults(tables=more)
    assert fault == "t1: w0 sent up to 3 and was acknowledged up to 2, the table has 9"


def test_a_metadata_file_that_is_gone_or_has_other_bytes_is_found(tmp_path: Path) -> None:
    file = tmp_path / "1.metadata.json"
    file.write_bytes(b"{}")
    settled = Settled(table="t0", location=f"file://{file}", sha256=hashlib.sha256(b"{}").hexdigest())
    assert check_files([settled]) == []
    file.write_bytes(b"[]")
    assert check_files([settled]) == ["t0: 1.metadata.json has other bytes than the log says"]
    file.unlink()
    assert check_files([settled]) == ["t0: the log names 1.metadata.json, which is gone"]
