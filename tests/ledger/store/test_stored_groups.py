# SPDX-License-Identifier: Apache-2.0
"""Groups that are asked for again are found by the index, however long the log has become."""

from __future__ import annotations

import re

import pytest

from lakeproof.provision import Provisioned
from ledger.store.read import QUERIES
from ledger.store.session import connect
from testkit.ledger.appending import appender_dsn


@pytest.mark.parametrize("query", ["entries_of_groups", "salts_of_groups"])
async def test_a_repeat_reads_its_own_entries_and_not_the_whole_log(installation: Provisioned, query: str) -> None:
    # The other way round, log times groups, a repeat in a log of a million entries would outlast its transaction.
    connection = await connect(appender_dsn(installation))
    text = "EXPLAIN " + re.sub(r"%\((\w+)\)b", r"%(\1)s", QUERIES[query])
    parameters = {"log_ids": [1] * 256, "firsts": list(range(256)), "ends": list(range(1, 257))}
    plan = [row[0] for row in await (await connection.execute(text.encode(), parameters)).fetchall()]
    await connection.close()
    assert any("Index Cond" in line and "g.first" in line and "g.ends" in line for line in plan), plan
    assert not any("Join Filter" in line or "Hash Join" in line for line in plan), plan
