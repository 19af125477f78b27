# SPDX-License-Identifier: Apache-2.0
"""
A real iceberg-go: a program does the same with the built-in catalog and with a foreign one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from testkit.engines.page import configuration
from testkit.engines.served_catalogs import ALIASES, LAKE, ServedCatalog
from testkit.servers.iceberg_go_program import ENGINE, SOURCES, run_iceberg_go


def test_the_program_connects_as_the_page_says() -> None:
    source = [line.strip() for line in (SOURCES / ENGINE).read_text(encoding="utf-8").splitlines()]
    shown = [line.strip() for line in configuration("iceberg-go", "go").splitlines()]
    assert "\n".join(shown) in "\n".join(source)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("alias", ALIASES)
async def test_iceberg_go_makes_writes_changes_renames_and_drops(
    catalogs: Mapping[str, ServedCatalog], alias: str
) -> None:
    catalog = catalogs[alias]
    found = await asyncio.to_thread(run_iceberg_go, "engine", catalog.url, alias, "going", key=catalog.key)
    found["namespace"].pop("location", None)  # the foreign server adds it
    assert found == {
        "namespace": {"team": "ada", "tier": "gold"},
        "appended": [0, 1, 2, 3, 4, 5],
        "deleted": [2, 3, 4, 5],
        "branch": [2, 3, 4, 5, 10],
        "columns": ["id", "person", "note"],
        "owner": "ada",
        "partition": "shard",
        "tables": ["invoices"],
        "renamed": [2, 3, 4, 5],
        "view": "SELECT 1 AS one",
        "views": 0,
    }
    if alias == LAKE:  # the other server deletes the files itself
        assert await catalog.purges() == [f"table:{alias}/going/invoices"]
    await catalog.check()
    for key in (f"table:{alias}/going/orders", f"table:{alias}/going/invoices", f"view:{alias}/going/report"):
        assert (await catalog.words(key))[-2:] == ["approved", "accepted"], key
