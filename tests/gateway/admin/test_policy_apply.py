# SPDX-License-Identifier: Apache-2.0
"""
A folder of policy files is brought into force: as planned, checked first, and repeated after an end in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR, Admin
from gateway.admin.policy_apply import (
    ExamplesDoNotHoldError,
    Planned,
    Step,
    apply_planned,
    check_planned,
    plan,
)
from gateway.admin.policy_edits import PolicyText
from gateway.control.aggregates import Policy
from gateway.errors import ConflictError, UnavailableError
from gateway.policy.policy_files import PolicyFile, PolicyFileError, parse_policy
from lakeproof.services import Services
from lakeproof.tenants import Founded, found_tenant

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES: Final = """
examples:
  - {expect: allow, name: plain, given: {}}
  - {expect: deny, name: purge, given: {commit: {purge: true}, result: {properties: {ä: '1'}}}}
scope: {names: [sales.**], operations: [table.drop, table.commit]}
"""


@pytest_asyncio.fixture(loop_scope="module")
async def acme(module_services: Services) -> Founded:
    """A tenant of the test's own."""
    return await found_tenant(module_services, name="acme", identity="ada@acme.example", roles=["data-eng"])


@pytest.fixture
def admin(module_services: Services) -> Admin:
    return module_services.gateway.admin


def file(policy_id: str, expression: str = "!commit.purge", more: str = EXAMPLES) -> PolicyFile:
    text = f"id: {policy_id}\nexpression: '{expression}'\nmessage: m\nreason: for the record\n{more}"
    return parse_policy(text.encode(), name=f"{policy_id}.yaml")


async def planned(admin: Admin, log_id: int, *files: PolicyFile, retire: bool = False) -> tuple[Planned, ...]:
    return plan(files, await admin.list_policies(log_id), retire=retire)


def steps(of: Sequence[Planned]) -> list[tuple[str, Step, int | None]]:
    return [(one.id, one.step, one.version) for one in of]


async def applied(admin: Admin, log_id: int, *files: PolicyFile, retire: bool = False) -> list[Policy]:
    todo = await planned(admin, log_id, *files, retire=retire)
    return [policy async for _, policy in apply_planned(admin, log_id, OPERATOR, todo)]


async def test_a_policy_is_created_as_its_file_says_and_is_then_unchanged(admin: Admin, acme: Founded) -> None:
    assert steps(await planned(admin, acme.log_id, file("p"))) == [("p", Step.CREATE, None)]
    (policy,) = await applied(admin, acme.log_id, file("p"))

    assert (policy.id, policy.version, policy.message, policy.reason) == ("p", 1, "m", "for the record")
    assert policy.scope.names == ("sales.**",)
    assert [str(one.expect) for one in policy.examples] == ["allow", "deny"]
    assert steps(await planned(admin, acme.log_id, file("p"))) == [("p", Step.UNCHANGED, 1)]
    assert await applied(admin, acme.log_id, file("p")) == []


@pytest.mark.parametrize(
    "other",
    [
        {"expression": "!commit.purge && true"},
        {"more": EXAMPLES.replace("sales", "hr")},
        {"more": EXAMPLES.replace("plain", "simple")},
        {"more": EXAMPLES.replace("'1'", "'2'")},
        {"more": ""},
    ],
)
async def test_every_other_content_is_a_change(admin: Admin, acme: Founded, other: dict[str, str]) -> None:
    await applied(admin, acme.log_id, file("p"))

    assert steps(await planned(admin, acme.log_id, file("p", **other))) == [("p", Step.CHANGE, 1)]
    (policy,) = await applied(admin, acme.log_id, file("p", **other))
    assert policy.version == 2
    assert steps(await planned(admin, acme.log_id, file("p", **other))) == [("p", Step.UNCHANGED, 2)]


async def test_another_reason_alone_changes_nothing(admin: Admin, acme: Founded) -> None:
    await applied(admin, acme.log_id, file("p"))

    todo = await planned(admin, acme.log_id, replace(file("p"), reason="another one"))
    assert steps(todo) == [("p", Step.UNCHANGED, 1)]


async def test_what_is_in_no_file_is_kept_unless_it_is_to_be_retired(admin: Admin, acme: Founded) -> None:
    await applied(admin, acme.log_id, file("p"), file("q"))

    assert steps(await planned(admin, acme.log_id, file("q"))) == [("q", Step.UNCHANGED, 1), ("p", Step.KEEP, 1)]
    assert await applied(admin, acme.log_id, file("q")) == []
    assert [policy.retired for policy in await applied(admin, acme.log_id, file("q"), retire=True)] == [True]
    assert [policy.id for policy in await admin.list_policies(acme.log_id)] == ["q"]


async def test_nothing_is_saved_before_everything_is_checked(
    admin: Admin, acme: Founded, module_services: Services
) -> None:
    async def check(*files: PolicyFile) -> None:
        todo = await planned(admin, acme.log_id, *files)
        await check_planned(admin, module_services.engine, acme.log_id, todo)

    await check(file("p"), file("q"))
    with pytest.raises(PolicyFileError, match=r"q\.yaml:2:15: unknown variable 'comit'"):
        await check(file("p"), file("q", "!comit.purge"))
    with pytest.raises(ExamplesDoNotHoldError, match=r"q\.yaml: example 1 \(plain\): expected allow, found deny; ex"):
        await check(file("p"), file("q", "commit.purge"))
    await applied(admin, acme.log_id, file("p"))
    await admin.retire_policy(acme.log_id, OPERATOR, policy_id="p")
    with pytest.raises(PolicyFileError, match=r"p\.yaml:1:1: expected an id that was never used, found 'p'"):
        await check(file("p"))


async def test_an_application_that_ended_in_between_is_repeated_and_saves_only_the_rest(
    admin: Admin, acme: Founded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await applied(admin, acme.log_id, file("old"), file("b"))
    files = (file("a"), file("b", "!commit.purge || false"), file("c"))
    save: Any = admin.change_policy

    async def outage(*arguments: Any, **named: Any) -> Policy:
        await save(*arguments, **named)
        raise UnavailableError("the answer was lost")

    monkeypatch.setattr(admin, "change_policy", outage)
    with pytest.raises(UnavailableError):
        await applied(admin, acme.log_id, *files, retire=True)
    monkeypatch.undo()

    assert steps(await planned(admin, acme.log_id, *files, retire=True)) == [
        ("a", Step.UNCHANGED, 1),
        ("b", Step.UNCHANGED, 2),
        ("c", Step.CREATE, None),
        ("old", Step.RETIRE, 1),
    ]
    assert [(one.id, one.version) for one in await applied(admin, acme.log_id, *files, retire=True)] == [
        ("c", 1),
        ("old", 2),
    ]
    assert [(one.id, one.version) for one in await admin.list_policies(acme.log_id)] == [("b", 2), ("a", 1), ("c", 1)]


async def test_a_policy_that_was_changed_since_the_plan_is_not_overwritten(admin: Admin, acme: Founded) -> None:
    await applied(admin, acme.log_id, file("p"))
    todo = await planned(admin, acme.log_id, file("p", "!commit.purge || false"))
    await admin.change_policy(
        acme.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="by hand")
    )

    with pytest.raises(ConflictError, match="expected version 1, found version 2"):
        _ = [one async for one in apply_planned(admin, acme.log_id, OPERATOR, todo)]
    assert (await admin.get_policy(acme.log_id, policy_id="p")).message == "by hand"
