# SPDX-License-Identifier: Apache-2.0
"""
Apache Iceberg's own tests for catalog servers, those of tables, views and namespaces.

What does not pass is listed with its reason, and nothing else may fail; what passes must not be listed. The foreign one
is Iceberg's own server, which does not pass what is listed for it if it is asked directly, either.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from gateway.admin.application import OPERATOR
from lakeproof.services import Services
from testkit.engines.served_catalogs import FAR, LAKE, ServedCatalog
from testkit.gateway.log_contents import check_agreement
from testkit.servers.gateways import open_gateway
from testkit.servers.iceberg_kit import TABLES, VIEWS, run_kit
from testkit.servers.iceberg_rest import start_iceberg_rest
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio

KEPT: Final = "the test deletes a metadata file behind the server's back, and the table is answered from what was read"
SPELLED: Final = "the test spells a folder file:/…, and the gateway spells metadata files like the catalog's location"
DOTS: Final = "the foreign server keeps no namespaces with a dot"
FOLDER: Final = Path("/tmp")  # noqa: S108 - where the tests of tables want some of theirs, whatever they are told
KIT: Final = "kit"
"""The alias of the catalog, whichever it is."""
NAMESPACES: Final = ("newdb", "ns")
"""Folders that they make there."""

DIFFERENT: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    (LAKE, TABLES): {"testLoadTableWithMissingMetadataFile(Path)": KEPT},
    (LAKE, VIEWS): {"createViewWithCustomMetadataLocation()": SPELLED},
    (FAR, TABLES): {"testNamespaceWithDot()": DOTS},
    (FAR, VIEWS): {},
}
SAID: Final = {
    KEPT: "Expecting code to raise a throwable",
    SPELLED: "Expecting actual",
    DOTS: "Expecting RegularImmutableList",
}


@asynccontextmanager
async def empty_catalog(services: Services, alias: str, folder: Path) -> AsyncIterator[ServedCatalog]:
    """Yield a catalog of a new tenant; its tables may be anywhere in `folder`."""
    with ExitStack() as stack:
        kind, options = "builtin", {"location": f"file://{folder}"}
        if alias == FAR:
            upstream = stack.enter_context(start_iceberg_rest())
            kind, options = "rest", {**options, "uri": upstream.url, "local-files": "allowed"}
        async with open_gateway(services) as gateway, serve_gateway(gateway.app) as url:
            admin, log_id = services.gateway.admin, gateway.acme.log_id
            await admin.create_catalog(log_id, OPERATOR, alias=KIT, kind=kind, options=options)
            yield ServedCatalog(alias=KIT, url=url, gateway=gateway)


@pytest.mark.parametrize(
    ("alias", "of", "least", "skipped_max"),
    [  # skipped: empty namespaces, dots and slashes in names
        pytest.param(LAKE, TABLES, 100, 9, id="lake, tables"),
        pytest.param(LAKE, VIEWS, 40, 1, id="lake, views"),
        pytest.param(FAR, TABLES, 100, 9, id="far, tables"),
        pytest.param(FAR, VIEWS, 40, 1, id="far, views"),
    ],
)
async def test_icebergs_own_tests_pass_but_for_those_with_a_reason(
    services: Services, tmp_path: Path, alias: str, of: str, least: int, skipped_max: int
) -> None:
    work = FOLDER if alias == FAR else tmp_path / "kit"  # the foreign server has its warehouse there
    work.mkdir(exist_ok=True)
    folder = FOLDER if of == TABLES else work
    different = DIFFERENT[alias, of]
    new = [made for name in NAMESPACES if not (made := FOLDER / name).exists()]
    async with empty_catalog(services, alias, folder) as catalog:
        run = partial(run_kit, of, url=catalog.url, warehouse=catalog.alias, key=catalog.key, folder=work)
        try:
            outcomes = await asyncio.to_thread(run)
        finally:
            for made in new:
                shutil.rmtree(made, ignore_errors=True)
        await catalog.check()
        if alias == LAKE:
            await check_agreement(services, catalog.gateway.acme.log_id)
    failed = {name: said for name, said in outcomes.items() if said not in {"passed", "skipped"}}
    unexpected = {name: said for name, said in failed.items() if SAID.get(different.get(name, ""), "\0") not in said}
    assert unexpected == {}
    assert failed.keys() == different.keys()
    assert len(outcomes) > least
    assert sum(said == "skipped" for said in outcomes.values()) <= skipped_max, outcomes
