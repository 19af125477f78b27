# SPDX-License-Identifier: Apache-2.0
"""
What the adapter does differently with a Nessie: which branch it is, and what that is not asked to do.

`tests/upstreams/test_nessie.py` runs a real one; here is what that does not say.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.catalogs.nessie import Branch, check_updates, parse_branch, with_stage_create
from gateway.errors import UnsupportedOperationError

IS_NESSIE = {"nessie.is-nessie-catalog": "true", "prefix": "main%7Cwarehouse"}


# Where it is


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("main%7Cwarehouse", "main"), ("main", "main"), ("etl%2Fx.y%7Cw", "etl/x.y"), ("main%4012ab%7Cw", "main@12ab")],
)
def test_the_branch_is_the_first_part_of_the_prefix(prefix: str, name: str) -> None:
    told = {**IS_NESSIE, "prefix": prefix, "nessie.core-base-uri": "https://nessie:19120/api/"}
    assert parse_branch(told, ["https://nessie:19120/iceberg"]) == Branch(name=name, api="https://nessie:19120/api")


@pytest.mark.parametrize(
    "told",
    [
        {"prefix": "main"},
        {**IS_NESSIE, "nessie.is-nessie-catalog": "false"},
        {**IS_NESSIE, "prefix": ""},
        {**IS_NESSIE, "prefix": "%7Cwarehouse"},
    ],
)
def test_another_catalog_has_no_branch(told: dict[str, str]) -> None:
    assert parse_branch({"nessie.core-base-uri": "http://h/api", **told}, ["http://h"]) is None


@pytest.mark.parametrize(
    "uri",
    ["http://other/api", "http://h:81/api", "http://user@h/api", "http://h/api?x", "file:///api", "//h/api", "", "h"],
)
def test_a_log_on_a_server_that_no_option_names_is_not_asked(uri: str) -> None:
    assert parse_branch({**IS_NESSIE, "nessie.core-base-uri": uri}, ["http://h"]) == Branch(name="main", api=None)


def test_one_that_an_option_names_is() -> None:
    told = {**IS_NESSIE, "nessie.core-base-uri": "http://other/api/"}
    assert parse_branch(told, ["http://h", "http://other"]) == Branch(name="main", api="http://other/api")


# What it does not do


def test_a_create_says_that_it_is_not_staged() -> None:
    assert with_stage_create(' { "name":"x"}', {"name": "x"}) == ' {"stage-create":false, "name":"x"}'
    said = '{"stage-create":true}'
    assert with_stage_create(said, {"stage-create": True}) == said


ADD: Any = {"action": "add-snapshot", "snapshot": {"snapshot-id": 2}}


def to(snapshot_id: int, ref: str = "main") -> Any:
    return {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": snapshot_id}


REMOVE: Any = {"action": "remove-snapshot-ref", "ref-name": "main"}


@pytest.mark.parametrize(
    "updates",
    [[], [ADD], [ADD, to(2)], [to(1)], [{"action": "set-properties", "updates": {}}], [REMOVE, ADD, to(2)]],
)
def test_main_at_the_newest_snapshot_is_what_it_has(updates: list[Any]) -> None:
    check_updates("lake", updates, 1)


@pytest.mark.parametrize(
    "updates",
    [
        [to(0)],
        [ADD, to(1)],
        [to(2), ADD],
        [ADD, to(2, "audit")],
        [REMOVE],
        [REMOVE, ADD],
        [{**REMOVE, "ref-name": "audit"}],
        [{"action": "remove-snapshots", "snapshot-ids": [1]}],
    ],
)
def test_other_refs_and_older_snapshots_are_refused(updates: list[Any]) -> None:
    with pytest.raises(UnsupportedOperationError, match="catalog lake: Nessie keeps"):
        check_updates("lake", updates, 1)


def test_of_a_table_without_a_snapshot_main_may_be_removed() -> None:
    check_updates("lake", [REMOVE], None)
