# SPDX-License-Identifier: Apache-2.0
"""
What is in force: the pure fold, and the control plane that follows a real log.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection

import gateway.control.plane
from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.control.aggregates import AccessRule, ApiKey, Catalog, ControlEvent, Policy, Restriction, Tenant
from gateway.control.plane import ControlBrokenError, ControlPlane, ControlState, ControlUnknownError, fold
from gateway.errors import ConflictError, UnavailableError
from gateway.policy.engine import Program
from lakeproof.services import Services, new_group_id
from lakeproof.tenants import Founded, found_tenant
from ledger.errors import BrokenError, Fault, FormatError, NoSuchLogError
from ledger.format.aggregates import Versioned
from ledger.format.entry import Entry
from ledger.format.event import Event, prepare
from ledger.format.events import (
    AccessRuleCreated,
    AccessRuleRetired,
    CatalogCreated,
    CatalogRetired,
    Effect,
    KeyCreated,
    KeyCreatedV1,
    KeyReplaced,
    KeyRevoked,
    MaskAction,
    PolicyChangedV1,
    PolicyCreatedV1,
    PolicyRetired,
    PolicyScope,
    RestrictionChanged,
    RestrictionContents,
    RestrictionCreated,
    RestrictionMask,
    RestrictionRetired,
    RestrictionSchema,
    TenantCreated,
)
from ledger.format.sequence import NO_CONTROL, Group
from ledger.store.session import Connection
from testkit.gateway.control_entries import ACTOR, NOON, entry
from testkit.gateway.unreadable_logs import append_newer, change_policy


def entries(*events: Versioned) -> list[Entry]:
    # Other entries stand between those of the control plane.
    return [entry(3 * number, event) for number, event in enumerate(events)]


CONTENTS = RestrictionContents(
    scope=PolicyScope(catalogs=(), names=(), kinds=(), operations=(), properties=(), uuids=()),
    filter="row.region == 'EU'",
    masks=(RestrictionMask(column="email", action=MaskAction.SHOW_LAST_4, unless=None),),
    schemas=(RestrictionSchema(name="orders", given='{"fields":[]}'),),
    examples=(),
)
OTHERS = replace(CONTENTS, filter=None)


def policy(policy_id: str = "p", expression: str = "true") -> PolicyCreatedV1:
    return PolicyCreatedV1(id=policy_id, version=1, expression=expression, message="no")


def test_nothing_is_in_force_before_the_first_entry() -> None:
    state = ControlState.empty()
    assert state.as_of == NO_CONTROL
    assert not any([state.policies, state.access_rules, state.catalogs, state.keys, state.tenants])
    # SHA-256 of the two bytes `[]`
    assert state.policy_set == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    assert fold(state, []) == state


def test_each_kind_comes_into_force_and_goes_out_of_it() -> None:
    created = entries(
        policy(),
        RestrictionCreated(id="r", version=1, contents=CONTENTS, reason="why"),
        AccessRuleCreated(id="a", version=1, effect=Effect.FORBID, expression="true"),
        CatalogCreated(id="lake", version=1, kind="builtin", options={"x": "y"}),
        KeyCreatedV1(id="k", version=1, prefix="abcdefghijkl", actor=ACTOR, roles=("data-eng",)),
        TenantCreated(id="f" * 32, version=1, name="Acme"),
    )
    state = fold(ControlState.empty(), created)
    assert state.as_of == 15
    assert state.restrictions == {"r": Restriction(id="r", version=1, contents=CONTENTS, reason="why")}
    assert state.policies == {"p": Policy(id="p", version=1, expression="true", message="no", is_template=False)}
    assert state.access_rules == {"a": AccessRule(id="a", version=1, effect=Effect.FORBID, expression="true")}
    assert state.catalogs == {"lake": Catalog(id="lake", version=1, kind="builtin", options={"x": "y"})}
    assert state.keys == {"k": ApiKey(id="k", version=1, prefix="abcdefghijkl", actor=ACTOR, roles=("data-eng",))}
    assert state.tenants == {"f" * 32: Tenant(id="f" * 32, version=1, name="Acme")}
    retired = [
        entry(20, PolicyRetired(id="p", version=2, reason="")),
        entry(21, AccessRuleRetired(id="a", version=2)),
        entry(22, CatalogRetired(id="lake", version=2)),
        entry(23, KeyRevoked(id="k", version=2)),
        entry(24, RestrictionRetired(id="r", version=2)),
    ]
    after = fold(state, retired)
    assert not any([after.policies, after.restrictions, after.access_rules, after.catalogs, after.keys])
    assert (after.as_of, after.policy_set) == (24, ControlState.empty().policy_set)
    assert state.policies  # the state before is as it was


def test_the_digest_names_type_id_and_version_of_what_judges_and_nothing_else() -> None:
    state = fold(
        ControlState.empty(),
        entries(
            policy("z"),
            AccessRuleCreated(id="r", version=1, effect=Effect.PERMIT, expression="true"),
            policy("b"),
            PolicyChangedV1(id="z", version=2, expression="false", message="no"),
            CatalogCreated(id="lake", version=1, kind="builtin", options={}),
        ),
    )
    canonical = b'[["access_rule","r",1],["policy","b",1],["policy","z",2]]'
    assert state.policy_set == hashlib.sha256(canonical).hexdigest()


def test_what_judges_becomes_programs_of_the_engine() -> None:
    rule = AccessRuleCreated(id="r", version=1, effect=Effect.PERMIT, expression="1 == 1")
    change = PolicyChangedV1(id="p", version=2, expression="false", message="no")
    state = fold(ControlState.empty(), entries(policy(), rule, change))
    assert state.policies["p"].program() == Program(kind="policy", id="p", version=2, expression="false")
    assert state.access_rules["r"].judged().program() == Program(
        kind="access_rule", id="r", version=1, expression="1 == 1"
    )


@pytest.mark.parametrize(
    ("event_type", "version"),
    [
        ("policy.archived", 1),
        ("policy.created", 5),
        ("contract.created", 1),
        ("tenant.suspended", 1),
        ("signer.created", 1),
    ],
)
def test_a_type_or_version_that_is_not_known_is_never_skipped(event_type: str, version: int) -> None:
    with pytest.raises(ControlUnknownError, match=f"{event_type} of version {version}") as refused:
        fold(ControlState.empty(), [entry(4, policy(), type=event_type, version=version)])
    assert refused.value.status == 503


@pytest.mark.parametrize(
    "history",
    [
        [PolicyChangedV1(id="p", version=2, expression="false", message="no")],
        [PolicyRetired(id="p", version=2, reason="")],
        [policy(), policy()],
        [policy(), PolicyChangedV1(id="p", version=3, expression="false", message="no")],
        [policy(), PolicyRetired(id="p", version=2, reason=""), PolicyRetired(id="p", version=3, reason="")],
        [replace(policy(), version=2)],
    ],
)
def test_an_event_that_does_not_follow_is_corruption(history: Sequence[ControlEvent]) -> None:
    with pytest.raises(FormatError, match=r"policy\.\w+ of policy:p"):
        fold(ControlState.empty(), entries(*history))


def key(end: str | None = None) -> KeyCreated:
    return KeyCreated(id="k", version=1, prefix="a" * 12, actor=ACTOR, roles=(), expires_at=end, issuer=None)


@pytest.mark.parametrize("before", [None, "2027-01-31T12:00:00.000000Z", "2027-02-01T12:00:00.000000Z"])
def test_a_key_that_was_replaced_is_in_force_with_its_new_end_until_it_is_revoked(before: str | None) -> None:
    end = "2027-01-31T12:00:00.000000Z"
    replaced = KeyReplaced(id="k", version=2, by="l", expires_at=end)
    state = fold(ControlState.empty(), entries(key(before), replaced))
    found = state.keys["k"]
    assert (found.version, found.replaced_by, found.expires_at) == (2, "l", datetime(2027, 1, 31, 12, tzinfo=UTC))
    assert fold(state, [entry(9, KeyRevoked(id="k", version=3))]).keys == {}
    with pytest.raises(ConflictError, match="key k was rotated before: rotate l"):
        found.replace(by="m", expires_at=NOON)


@pytest.mark.parametrize(
    "history",
    [
        [KeyReplaced(id="k", version=2, by="l", expires_at="2027-01-31T12:00:00.000000Z")],
        [key(), KeyReplaced(id="k", version=3, by="l", expires_at="2027-01-31T12:00:00.000000Z")],
        [
            key("2027-01-31T11:59:59.999999Z"),
            KeyReplaced(id="k", version=2, by="l", expires_at="2027-01-31T12:00:00.000000Z"),
        ],
        [key(), *(KeyReplaced(id="k", version=n, by="l", expires_at="2027-01-31T12:00:00.000000Z") for n in (2, 3))],
        [
            key(),
            KeyRevoked(id="k", version=2),
            KeyReplaced(id="k", version=3, by="l", expires_at="2027-01-31T12:00:00Z"),
        ],
        [key(), KeyReplaced(id="k", version=2, by="l", expires_at="soon")],
    ],
)
def test_a_replacement_that_does_not_follow_or_puts_an_end_off_is_corruption(history: Sequence[ControlEvent]) -> None:
    with pytest.raises(FormatError):
        fold(ControlState.empty(), entries(*history))


def test_a_restriction_is_none_of_the_policies_that_judge_commits() -> None:
    state = fold(ControlState.empty(), entries(RestrictionCreated(id="r", version=1, contents=CONTENTS, reason="")))
    assert state.policy_set == ControlState.empty().policy_set
    changed = fold(state, [entry(1, RestrictionChanged(id="r", version=2, contents=OTHERS, reason="now"))])
    assert changed.restrictions == {"r": Restriction(id="r", version=2, contents=OTHERS, reason="now")}


@pytest.mark.parametrize(
    "history",
    [
        [RestrictionChanged(id="r", version=2, contents=CONTENTS, reason="")],
        [RestrictionCreated(id="r", version=2, contents=CONTENTS, reason="")],
        [
            RestrictionCreated(id="r", version=1, contents=CONTENTS, reason=""),
            RestrictionChanged(id="r", version=3, contents=CONTENTS, reason=""),
        ],
        [
            RestrictionCreated(id="r", version=1, contents=CONTENTS, reason=""),
            RestrictionRetired(id="r", version=2),
            RestrictionChanged(id="r", version=3, contents=CONTENTS, reason=""),
        ],
    ],
)
def test_an_event_of_a_restriction_that_does_not_follow_is_corruption(history: Sequence[ControlEvent]) -> None:
    with pytest.raises(FormatError):
        fold(ControlState.empty(), entries(*history))


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "policy:q"},
        {"key": "access_rule:p"},
        {"data": {"id": "p", "version": 1, "expression": "true"}},
        {"data": {"id": "p", "version": "1", "expression": "true", "message": "no"}},
    ],
)
def test_an_entry_that_is_not_what_we_write_is_corruption(changes: dict[str, Any]) -> None:
    assert fold(ControlState.empty(), [entry(0, policy())]).policies
    with pytest.raises(FormatError):
        fold(ControlState.empty(), [entry(0, policy(), **changes)])


def test_entries_are_folded_in_order_and_once() -> None:
    state = fold(ControlState.empty(), [entry(5, policy("a"))])
    for index in (4, 5):
        with pytest.raises(FormatError, match="behind 5"):
            fold(state, [entry(index, policy("b"))])


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Draw a history that guards would let into a log: each event follows the one before of its aggregate."""
    versions: dict[tuple[str, str], int] = {}
    events: list[Versioned] = []
    for _ in range(draw(st.integers(0, 25))):
        kind, name = draw(st.sampled_from(["policy", "access_rule", "key"])), draw(st.sampled_from("abcd"))
        version = versions.get((kind, name), 1)
        if version == 0:
            continue  # retired, for ever
        ends = version > 1 and draw(st.booleans())
        versions[kind, name] = 0 if ends else version + 1
        match kind, version, ends:
            case "policy", 1, _:
                events.append(policy(name, draw(st.sampled_from(["true", "false"]))))
            case "policy", _, True:
                events.append(PolicyRetired(id=name, version=version, reason=""))
            case "policy", _, False:
                events.append(PolicyChangedV1(id=name, version=version, expression="1 == 1", message="no"))
            case "access_rule", 1, _:
                events.append(AccessRuleCreated(id=name, version=1, effect=Effect.PERMIT, expression="true"))
            case "key", 1, _:
                events.append(KeyCreatedV1(id=name, version=1, prefix="a" * 12, actor=ACTOR, roles=()))
            case "access_rule", _, _:
                events.append(AccessRuleRetired(id=name, version=version))
                versions[kind, name] = 0
            case _:
                events.append(KeyRevoked(id=name, version=version))
                versions[kind, name] = 0
    indices = sorted(draw(st.sets(st.integers(0, 1000), min_size=len(events), max_size=len(events))))
    return [entry(index, event) for index, event in zip(indices, events, strict=True)]


@settings(max_examples=100, deadline=None)
@given(history=histories(), cuts=st.lists(st.integers(0, 25), max_size=5))
def test_a_fold_in_pages_is_the_fold_at_once(history: list[Entry], cuts: list[int]) -> None:
    at_once = fold(ControlState.empty(), history)
    state, start = ControlState.empty(), 0
    for cut in [*sorted(cuts), len(history)]:
        state = fold(state, history[start:cut])
        start = max(start, cut)
    assert state == at_once
    assert list(state.policies) == list(at_once.policies)
    assert state.as_of == (history[-1].index if history else NO_CONTROL)


@settings(max_examples=50, deadline=None)
@given(history=histories())
def test_the_digest_is_the_one_of_what_is_in_force(history: list[Entry]) -> None:
    in_force: dict[str, list[object]] = {}
    for found in history:
        if found.type.endswith("retired"):
            del in_force[found.key]
        elif not found.type.startswith("key."):
            in_force[found.key] = [found.type.partition(".")[0], found.data["id"], found.data["version"]]
    expected = json.dumps(sorted(in_force.values()), separators=(",", ":"))
    assert fold(ControlState.empty(), history).policy_set == hashlib.sha256(expected.encode()).hexdigest()


# The control plane over a real log


on_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def services(module_services: Services) -> Services:
    """The services that the tests of this module share; each has tenants of its own."""
    return module_services


@pytest_asyncio.fixture(loop_scope="module")
async def acme(services: Services) -> Founded:
    return await found_tenant(services, name="acme", identity="ada@acme.example")


class CountedLend:
    """Lends connections of the gateway's role and counts them."""

    def __init__(self, services: Services) -> None:
        self._lend = partial(services.gateway.database.as_role, services.gateway.roles.gateway)
        self.lent = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Connection]:
        self.lent += 1
        async with self._lend() as connection:
            yield connection


@on_module_loop
async def test_a_change_is_in_force_everywhere_as_soon_as_it_is_durable(services: Services, acme: Founded) -> None:
    elsewhere = ControlPlane(CountedLend(services))
    before = await elsewhere.current(acme.log_id)
    assert list(before.access_rules) == ["first-key"]
    catalog = await services.gateway.admin.create_catalog(
        acme.log_id, OPERATOR, alias="lake", kind="builtin", options={}
    )
    after = await elsewhere.current(acme.log_id)
    assert after.catalogs == {"lake": catalog}
    assert after.as_of > before.as_of
    assert after == await services.gateway.control.current(acme.log_id)


@on_module_loop
async def test_concurrent_callers_share_one_catching_up(services: Services, acme: Founded) -> None:
    lend = CountedLend(services)
    plane = ControlPlane(lend)
    states = await asyncio.gather(*(plane.current(acme.log_id) for _ in range(20)))
    assert all(state is states[0] for state in states)
    assert lend.lent == 21  # a look at the head each, and one reading of entries
    assert await plane.current(acme.log_id) is states[0]
    assert lend.lent == 22


@on_module_loop
async def test_pages_are_read_to_the_end(services: Services, acme: Founded, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        alias = f"lake-{number}"
        await services.gateway.admin.create_catalog(acme.log_id, OPERATOR, alias=alias, kind="builtin", options={})
    whole = await services.gateway.control.current(acme.log_id)
    for page in (1, 2, 3, 6, 7):
        monkeypatch.setattr(gateway.control.plane, "PAGE", page)
        assert await ControlPlane(CountedLend(services)).current(acme.log_id) == whole


@on_module_loop
async def test_states_are_bounded_and_a_dropped_one_is_folded_again(services: Services, acme: Founded) -> None:
    other = await found_tenant(services, name="other", identity="bob@other.example", alias="theirs")
    lend = CountedLend(services)
    plane = ControlPlane(lend, states_max=1)
    ours, theirs = await plane.current(acme.log_id), await plane.current(other.log_id)
    assert (set(ours.catalogs), set(theirs.catalogs)) == (set(), {"theirs"})
    assert lend.lent == 4
    assert await plane.current(acme.log_id) == ours
    assert lend.lent == 6


@on_module_loop
async def test_an_old_process_refuses_to_judge_what_a_newer_one_wrote_and_says_so_once(
    services: Services, acme: Founded, caplog: pytest.LogCaptureFixture
) -> None:
    await services.gateway.control.current(acme.log_id)
    await append_newer(services, acme.log_id)
    for _ in range(2):
        with pytest.raises(ControlUnknownError, match=r"policy\.archived"):
            await services.gateway.control.current(acme.log_id)
    (told,) = [record for record in caplog.records if record.name == "gateway.control.plane"]
    assert told.levelname == "WARNING"
    assert "a policy.archived of version 1, which this process does not know: a newer one must serve" in told.message


@on_module_loop
async def test_a_head_that_names_a_control_entry_which_is_not_there_is_corruption(
    services: Services, acme: Founded, module_database: str
) -> None:
    with psycopg.connect(module_database) as connection:
        connection.execute(
            "UPDATE ledger.entries SET is_control = false WHERE log_id = %s AND type = 'key.created'", (acme.log_id,)
        )
    with pytest.raises(ControlBrokenError) as broken:
        await ControlPlane(CountedLend(services)).current(acme.log_id)
    assert "control index" in str(broken.value.__cause__)


@on_module_loop
async def test_an_entry_that_was_changed_in_the_database_is_never_in_force(
    services: Services, acme: Founded, module_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin = services.gateway.admin
    frozen = PolicyText(expression="commit.name != 'frozen'", message="frozen")
    await admin.create_policy(acme.log_id, OPERATOR, policy_id="p", text=frozen)
    running = ControlPlane(CountedLend(services))
    signed = await running.current(acme.log_id)
    change_policy(module_database, acme.log_id, "frozen", "thawed")
    # What was read before the change is in force as it was signed; whoever reads it now judges nothing.
    assert await running.current(acme.log_id) is signed
    started = ControlPlane(CountedLend(services))
    for _ in range(2):
        with pytest.raises(ControlBrokenError) as broken:
            await started.current(acme.log_id)
        assert broken.value.status == 503
        assert isinstance(broken.value.__cause__, BrokenError)
        assert broken.value.__cause__.fault is Fault.DERIVED
        assert "thawed" not in str(broken.value)
    (told,) = [record for record in caplog.records if record.name == "gateway.control.plane"]
    assert told.levelname == "ERROR"
    assert f"index {signed.as_of} in ledger.entries: expected an entry with the leaf hash" in told.getMessage()
    change_policy(module_database, acme.log_id, "thawed", "frozen")
    assert await started.current(acme.log_id) == signed


@on_module_loop
async def test_a_running_process_does_not_use_a_later_entry_that_was_changed(
    services: Services, acme: Founded, module_database: str
) -> None:
    running = ControlPlane(CountedLend(services))
    before = await running.current(acme.log_id)
    admin = services.gateway.admin
    frozen = PolicyText(expression="commit.name != 'frozen'", message="frozen")
    await admin.create_policy(acme.log_id, OPERATOR, policy_id="p", text=frozen)
    change_policy(module_database, acme.log_id, "frozen", "thawed")
    with pytest.raises(ControlBrokenError):
        await running.current(acme.log_id)
    assert running.known(acme.log_id) == before


@on_module_loop
async def test_a_log_that_is_not_there_has_no_state(services: Services) -> None:
    with pytest.raises(NoSuchLogError):
        await services.gateway.control.current(4711)


@on_module_loop
async def test_nothing_is_in_force_while_the_database_cannot_be_reached() -> None:
    @asynccontextmanager
    async def lend() -> AsyncIterator[Connection]:
        async with await AsyncConnection.connect("host=127.0.0.1 port=1 connect_timeout=2") as connection:
            yield connection

    with pytest.raises(UnavailableError):
        await ControlPlane(lend).current(1)


@on_module_loop
async def test_the_gateways_role_reads_control_entries_and_no_others(services: Services, acme: Founded) -> None:
    event = Event(type="commit.observed", version=1, key="table:lake/t", actor="system", occurred_at=NOON, data={})
    await services.appender.append(acme.log_id, Group(id=new_group_id(), then=(prepare(event),)))
    async with services.gateway.database.as_role(services.gateway.roles.gateway) as connection:
        rows = await (
            await connection.execute("SELECT index FROM ledger.entries WHERE log_id = %s", (acme.log_id,))
        ).fetchall()
        assert [row[0] for row in rows] == [0, 1]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute("SELECT sealed FROM ledger.parts")
