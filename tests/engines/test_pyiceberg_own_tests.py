# SPDX-License-Identifier: Apache-2.0
"""
PyIceberg's own integration tests, those that need a REST catalog and nothing else, over both catalogs.

What does not pass is listed with its reason, and nothing else may fail; what passes must not be listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import pytest

from testkit.engines.pyiceberg_tests import run_pyiceberg_tests
from testkit.engines.served_catalogs import ALIASES, FAR, LAKE, ServedCatalog
from testkit.servers.python_packages import PACKAGES

OF_CATALOGS: Final = (
    "test_catalog.py",
    "test_rest_catalog.py",
    "test_snapshot_operations.py",
    "test_sort_order_update.py",
    "test_statistics_operations.py",
)
FILES: Final = {LAKE: (*OF_CATALOGS, "test_writes/test_writes.py"), FAR: OF_CATALOGS}
"""Those that test most of a catalog in a few seconds."""
LEAST: Final = {LAKE: 100, FAR: 60}
"""How many tests there must be at least."""

ELSEWHERE: Final = "the test names a file of statistics outside of the table"
NO_REGISTER: Final = "the foreign server does not offer to register a table"
S3: Final = "the test expects the table's files in a bucket"
CORE: Final = "the test needs pyiceberg-core, which is not installed"

DIFFERENT: Final = {
    LAKE: {
        "test_statistics_operations.test_manage_statistics": ELSEWHERE,
        "test_writes.test_merge_manifests_file_content[1]": S3,
        "test_writes.test_merge_manifests_file_content[2]": S3,
        "test_writes.test_delete_threshold": CORE,
        "test_writes.test_rewrite_manifest_after_partition_evolution": CORE,
    },
    FAR: {"test_catalog.test_register_table": NO_REGISTER, "test_catalog.test_register_table_existing": NO_REGISTER},
}
SAID: Final = {
    ELSEWHERE: "statistics-path: expected a file of the table",
    NO_REGISTER: "Server does not support endpoint: POST /v1/{prefix}/namespaces/{namespace}/register",
    S3: "AssertionError",
    CORE: "pyiceberg_core needs to be installed",
}
SKIPPED: Final = {"test_catalog.test_namespace_with_slash", "test_catalog.test_table_name_with_slash"}
"""PyIceberg's client splits such names itself."""


def test_the_tests_are_those_of_the_pyiceberg_that_is_installed() -> None:
    assert f"pyiceberg=={version('pyiceberg')} " in (PACKAGES / "pyiceberg-source.txt").read_text(encoding="utf-8")


@pytest.mark.asyncio(loop_scope="module")
async def test_pyicebergs_own_tests_pass_but_for_those_with_a_reason(catalogs: Mapping[str, ServedCatalog]) -> None:
    runs = (asyncio.to_thread(run_pyiceberg_tests, catalogs[alias], FILES[alias]) for alias in ALIASES)
    for alias, outcomes in zip(ALIASES, await asyncio.gather(*runs), strict=True):
        different = DIFFERENT[alias]
        failed = {name: said for name, said in outcomes.items() if said not in {"passed", "skipped"}}
        unexpected = {
            name: said for name, said in failed.items() if SAID.get(different.get(name, ""), "\0") not in said
        }
        assert (alias, unexpected) == (alias, {})
        assert different.keys() - failed.keys() == set()
        assert {name for name, said in outcomes.items() if said == "skipped"} == SKIPPED
        assert len(outcomes) >= LEAST[alias]
        await catalogs[alias].check()
