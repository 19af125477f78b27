# SPDX-License-Identifier: Apache-2.0
"""
The same rule file at a real Nessie and here: the same verdicts, and the differences that docs/access-rules.md lists.

`bench/access_rules.py` compares ten times as many requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gateway.policy.rule_files import PREFIX
from gateway.policy.variables import CommitView
from testkit.gateway.ruled_nessie import (
    SETS_MAX,
    Asked,
    Caller,
    RuledNessie,
    random_caller,
    random_request,
    random_rules,
    start_ruled_nessie,
)
from testkit.servers.cloud import fresh_cloud
from testkit.servers.java import ServerNotReadyError

REQUESTS, SETS = 200, SETS_MAX - 1
SEED = 20
MORE = f"""
{PREFIX}entries='entries' in roles && op in ['READ_ENTRIES', 'READ_CONTENT_KEY']
"""


@pytest.fixture(scope="module")
def ruled(moto: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuledNessie]:
    """A real server with sets of random rules, and a few more."""
    file = random_rules(Random(f"rules {SEED}"), SETS) + MORE  # noqa: S311 (repeatable)
    with start_ruled_nessie(fresh_cloud(moto), file, tmp_path_factory.mktemp("rules")) as server:
        yield server


async def test_both_judge_the_same_requests_alike(ruled: RuledNessie) -> None:
    random, verdicts = Random(f"requests {SEED}"), Counter[bool]()  # noqa: S311 (repeatable)
    for number in range(REQUESTS):
        caller, asked = random_caller(random, SETS), random_request(random, number)
        there, here = ruled.verdict(caller, asked), await ruled.own_verdict(caller, asked)
        rules = [rule.expression for rule in ruled.rules if rule.id.startswith(f"{caller.roles[0]}-")]
        assert there == here, f"{caller} {asked}: Nessie {there}, here {here}, by {rules}"
        verdicts[there] += 1
    assert min(verdicts[True], verdicts[False]) >= REQUESTS // 5


def caller(role: str) -> Caller:
    return Caller(name="Ada", roles=(role,))


def test_nessie_does_not_start_with_a_rule_that_reads_actions(moto: str, tmp_path: Path) -> None:
    file = f"{PREFIX}r='CATALOG_DROP_ENTITY' in actions"
    with (
        pytest.raises(ServerNotReadyError, match="undeclared reference to 'actions'"),
        start_ruled_nessie(fresh_cloud(moto), file, tmp_path),
    ):
        pass


async def test_nessie_lists_what_is_on_a_reference_without_a_look_at_it(ruled: RuledNessie) -> None:
    path = "/iceberg/v1/main/namespaces/shop/tables"
    listed = Asked(
        method="GET",
        path=path,
        branch="main",
        commit=CommitView(catalog="far", namespace=("shop",), name="", kind="namespace", operation="namespace.list"),
    )
    assert ruled.verdict(caller("entries"), listed)
    assert not await ruled.own_verdict(caller("entries"), listed)
