# SPDX-License-Identifier: Apache-2.0
"""
A real iceberg-rust: a program does the same with the built-in catalog and with a foreign one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from testkit.engines.page import configuration
from testkit.engines.served_catalogs import ALIASES, FAR, LAKE, ServedCatalog
from testkit.servers.cargo_program import MAIN
from testkit.servers.iceberg_rust_program import SOURCES, iceberg_rust, run_iceberg_rust

RACED: Final = [0, 1, 2, 3, 100, 101, 102, 103]


@pytest.fixture(autouse=True)
def program(capfd: pytest.CaptureFixture[str]) -> None:
    """Build the program where people see how far the build is."""
    with capfd.disabled():
        iceberg_rust()


async def run(catalog: ServedCatalog, what: str, namespace: str) -> dict[str, Any]:
    """Return what the program finds in a catalog."""
    return await asyncio.to_thread(run_iceberg_rust, what, catalog.url, catalog.alias, namespace, key=catalog.key)


def test_the_program_connects_as_the_page_says() -> None:
    source = [line.strip() for line in (SOURCES / MAIN).read_text(encoding="utf-8").splitlines()]
    shown = [line.strip() for line in configuration("iceberg-rust", "rust").splitlines()]
    assert "\n".join(shown) in "\n".join(source)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("alias", ALIASES)
async def test_iceberg_rust_makes_writes_changes_renames_registers_and_drops(
    catalogs: Mapping[str, ServedCatalog], alias: str
) -> None:
    catalog = catalogs[alias]
    found = await run(catalog, "engine", "rusting")
    found["namespaces"]["properties"].pop("location", None)  # the foreign server adds it
    registered = found["names"].pop("registered")
    assert found == {
        "namespaces": {
            "properties": {"team": "ada"},
            "inner": ["rusting.inner"],
            "updated": "FeatureUnsupported => Updating namespace not supported yet!",
            "exist": [True, False],
        },
        "rows": {
            "empty": [],
            "first": [0, 1, 2, 3, 4, 5],
            "second": [0, 1, 2, 3, 4, 5, 6, 7],
            "before": [0, 1, 2, 3, 4, 5],
            "filtered": [0, 1],
            "operations": ["append", "append"],
        },
        "partitions": {"all": [0, 1, 2, 3], "odd": [1, 3], "files": 1},
        "changes": {
            "refused": "CatalogCommitConflicts => CatalogCommitConflicts, one or more requirements failed."
            " The client may retry.",
            "columns": ["id", "note"],
            "properties": {"owner": "ada", "old": None},
            "sorted": [[1, "descending"]],
            "version": "v3",
            "snapshots": ["append"],
            "rows": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        },
        "raced": RACED,
        "names": {
            "renamed": [0, 1, 2, 3, 4, 5, 6, 7, 8],
            "absent": "TableNotFound => Tried to load a table that does not exist",
            "listed": ["invoices", "raced", "sharded"],
            "exist": [False, False],
        },
    }
    purged = {"invoices", "sharded"}
    if alias == LAKE:
        assert registered == RACED
        purged |= {"again"}
        assert set(await catalog.purges()) == {f"table:{alias}/rusting/{name}" for name in purged}
    else:  # the other server deletes the files itself
        assert "status: 406" in registered
        assert "expected a catalog whose metadata files the gateway can read" in registered
    await catalog.check()
    for name in purged | {"raced"}:
        assert (await catalog.words(f"table:{alias}/rusting/{name}"))[-2:] == ["approved", "accepted"], name
    # Of two that commit at the same time one may be told to retry, and does: nothing is written twice.
    told = await catalog.words(f"table:{alias}/rusting/raced")
    assert told.count("accepted") == 1 + len(RACED) + 1, "the creation, the appends, the drop"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("alias", ALIASES)
async def test_what_a_policy_refuses_reaches_the_user_with_its_reason(
    catalogs: Mapping[str, ServedCatalog], alias: str
) -> None:
    catalog = catalogs[alias]
    expression = "commit.name != 'guarded' || result.columns.exists(c, c.name == 'kind')"
    await catalog.refuse("kinds", expression, "guarded tables have kinds")
    found = await run(catalog, "guarded", "guarding")
    assert found.pop("rows") == [0], "what is allowed goes on"
    assert "status: 403 Forbidden" in found["refused"]
    assert '"guarded tables have kinds (policy kinds, version 1)","type":"ForbiddenException"' in found["refused"]
    await catalog.check()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_key_and_the_key_of_another_tenant_open_nothing_and_are_not_shown(
    catalogs: Mapping[str, ServedCatalog],
) -> None:
    far, other = catalogs[FAR], catalogs[LAKE].key
    wrong = far.key[:-2] + ("AA" if far.key[-2:] != "AA" else "BB")
    for key, status in ((wrong, "401 Unauthorized"), (other, "404 Not Found")):
        with pytest.raises(RuntimeError, match=f"status: {status}") as refused:
            await asyncio.to_thread(run_iceberg_rust, "guarded", far.url, FAR, "stolen", key=key)
        assert key not in str(refused.value)
    assert await far.words(f"namespace:{FAR}/stolen") == []


@pytest.mark.asyncio(loop_scope="module")
async def test_the_crates_bring_no_tls(catalogs: Mapping[str, ServedCatalog]) -> None:
    lake = catalogs[LAKE]
    url = lake.url.replace("http://", "https://")
    with pytest.raises(RuntimeError, match="invalid URL, scheme is not http"):
        await asyncio.to_thread(run_iceberg_rust, "guarded", url, LAKE, "encrypted", key=lake.key)
