# SPDX-License-Identifier: Apache-2.0
"""
Apache Iceberg's own tests for catalog servers, those of tables, views and namespaces, against the built-in catalog.

What does not pass is listed with its reason, and nothing else may fail; what passes must not be listed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from gateway.admin.application import OPERATOR
from testkit.gateway.log_contents import check_agreement
from testkit.servers.gateways import Gateway
from testkit.servers.iceberg_kit import TABLES, VIEWS, run_kit

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEPT: Final = "the test deletes a metadata file behind the server's back, and the table is answered from what was read"
SPELLED: Final = "the test spells a folder file:/…, and the gateway spells metadata files like the catalog's location"
FOLDER: Final = Path("/tmp")  # noqa: S108 - where the tests of tables want some of theirs, whatever they are told
NAMESPACES: Final = ("newdb", "ns")
"""Folders that they make there."""

OF_TABLES: Final = {
    "testLoadTableWithMissingMetadataFile(Path)": KEPT,
}
OF_VIEWS: Final = {
    "createViewWithCustomMetadataLocation()": SPELLED,
}
SAID: Final = {
    KEPT: "Expecting code to raise a throwable",
    SPELLED: "Expecting actual",
}


@pytest.mark.parametrize(
    ("of", "different", "least", "skipped_max"),
    [
        pytest.param(TABLES, OF_TABLES, 100, 9, id="tables"),  # skipped: empty namespaces, dots and slashes in names
        pytest.param(VIEWS, OF_VIEWS, 40, 1, id="views"),
    ],
)
async def test_icebergs_own_tests_pass_but_for_those_with_a_reason(
    shared_gateway: Gateway,
    module_url: str,
    tmp_path: Path,
    of: str,
    different: Mapping[str, str],
    least: int,
    skipped_max: int,
) -> None:
    acme, alias = shared_gateway.acme, of.rpartition(".")[2].lower()
    folder = FOLDER if of == TABLES else tmp_path
    await shared_gateway.services.gateway.admin.create_catalog(
        acme.log_id, OPERATOR, alias=alias, kind="builtin", options={"location": f"file://{folder}"}
    )
    run = partial(run_kit, of, url=module_url, warehouse=alias, key=acme.key.secret, folder=tmp_path)
    new = [made for name in NAMESPACES if not (made := FOLDER / name).exists()]
    try:
        outcomes = await asyncio.to_thread(run)
    finally:
        for made in new:
            shutil.rmtree(made, ignore_errors=True)
    failed = {name: said for name, said in outcomes.items() if said not in {"passed", "skipped"}}
    unexpected = {name: said for name, said in failed.items() if SAID.get(different.get(name, ""), "\0") not in said}
    assert unexpected == {}
    assert failed.keys() == different.keys()
    assert len(outcomes) > least
    assert sum(said == "skipped" for said in outcomes.values()) <= skipped_max, outcomes
    await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)
