# SPDX-License-Identifier: Apache-2.0
"""
Edits of the control plane: aggregates, their limits, and the operations on a real log with the real policy engine.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from gateway.admin import limits
from gateway.admin.application import OPERATOR, Admin, Editor, StaleEditError
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs import login_options
from gateway.catalogs.registry import KINDS
from gateway.control.aggregates import AccessRule, ApiKey, Catalog, Policy, RetiredError, Tenant, aggregate_key, project
from gateway.control.plane import ControlPlane, ControlUnknownError
from gateway.errors import (
    BadRequestError,
    CommitStateUnknownError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
    UnprocessableError,
)
from gateway.identity.api_keys import KeyHasher
from gateway.identity.key_macs import open_key_macs
from gateway.policy.engine import PolicyNotCompiledError
from lakeproof.provision import create_tenant_log
from lakeproof.services import KEY_SECRET, Services, new_group_id, now
from lakeproof.tenants import Founded, found_tenant
from ledger.errors import LogUnavailableError, NoSuchLogError, OutcomeUnknownError, QueueFullError
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import Event, prepare
from ledger.format.events import Effect
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.log_store import LogStore
from ledger.store.read import read_entries, read_head
from ledger.store.recorder import LogApplication
from projections.egress.rules import EgressRules
from testkit.servers.loopback import LOOPBACK

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EDITOR = "0123456789abcdef" * 2


on_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def services(module_services: Services) -> Services:
    """The services that the tests of this module share; each has tenants of its own."""
    return module_services


@pytest_asyncio.fixture(loop_scope="module")
async def acme(services: Services) -> Founded:
    return await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"])


@pytest.fixture
def admin(services: Services) -> Admin:
    return services.gateway.admin


def another_admin(services: Services, *, store: LogStore | None = None, kinds: tuple[str, ...] = tuple(KINDS)) -> Admin:
    """An admin as another process would have it: with a control plane of its own, over the same database."""
    parts = services.gateway
    lend = partial(parts.database.as_role, parts.roles.gateway)
    return Admin(
        store or LogStore(services.appender, lend, new_group_id=new_group_id),
        ControlPlane(lend),
        parts.judge.engine,
        conditions=services.engine,
        lend_appender=partial(parts.database.as_role, parts.roles.appender),
        catalog_kinds=kinds,
        egress=LOOPBACK,
        warehouse=parts.catalogs.warehouse,
        clock=now,
        random=parts.random,
        macs=open_key_macs(services.installation.keys / KEY_SECRET),
        hasher=KeyHasher(time_cost=1, memory_cost_kib=8),
    )


async def stored(services: Services, log_id: int) -> list[bytes]:
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        head = await read_head(connection, log_id)
        return await read_entries(connection, log_id, from_index=0, to_index=head.size)


async def entries(services: Services, log_id: int) -> list[Entry]:
    return [parse_entry(entry) for entry in await stored(services, log_id)]


# Founding a tenant


@on_module_loop
async def test_a_tenants_first_group_is_the_rule_that_permits_its_first_key(services: Services, acme: Founded) -> None:
    rule, key = await entries(services, acme.log_id)
    assert (rule.index, rule.type, rule.key) == (0, "access_rule.created", "access_rule:first-key")
    assert (key.type, key.key) == ("key.created", f"key:{acme.key.id}")
    assert (rule.group_id, rule.of) == (key.group_id, 2)
    assert rule.data["effect"] == "permit"
    permits = f'actor == "{acme.key.actor}" && has(grant.identity) && has(grant.roles)'
    assert (rule.version, rule.data["expression"]) == (2, permits)
    assert key.data["actor"] == acme.key.actor
    assert key.data["roles"] == ["data-eng"]
    system = await entries(services, services.system.log_id)
    (tenant,) = [entry for entry in system if entry.key == f"tenant:{acme.tenant.hex}"]
    assert tenant.type == "tenant.created"
    assert tenant.data == {"id": acme.tenant.hex, "name": "acme", "version": 1}


@on_module_loop
async def test_the_first_rule_compiles_as_an_access_rule(services: Services, acme: Founded) -> None:
    (rule,) = await services.gateway.admin.list_access_rules(acme.log_id)
    await services.gateway.judge.engine.check(rule.expression, log_id=acme.log_id, timeout_s=10, kind=rule.KIND)


@on_module_loop
async def test_a_tenant_is_founded_once(services: Services, acme: Founded, admin: Admin) -> None:
    again = partial(admin.found_tenant, acme.log_id, system_log_id=services.system.log_id, identity="eve")
    with pytest.raises(ConflictError, match="founded already"):
        await again(tenant=acme.tenant, name="acme")
    with pytest.raises(ConflictError):
        await again(tenant=acme.tenant, name="another name")
    assert len(await entries(services, acme.log_id)) == 2
    assert list(await admin.list_keys(acme.log_id)) == [
        (await services.gateway.control.current(acme.log_id)).keys[acme.key.id]
    ]


@on_module_loop
async def test_founding_goes_on_where_a_crash_has_stopped_it(services: Services, admin: Admin) -> None:
    tenant = uuid4()
    log_id = create_tenant_log(services.installation.admin_dsn, services.installation, tenant)
    with pytest.raises(NoSuchLogError):  # the system log is told, then the tenant's log is not there
        await admin.found_tenant(4711, system_log_id=services.system.log_id, tenant=tenant, name="t", identity="ada")
    await admin.found_tenant(log_id, system_log_id=services.system.log_id, tenant=tenant, name="t", identity="ada")
    told = await entries(services, services.system.log_id)
    assert [entry.type for entry in told if entry.key == f"tenant:{tenant.hex}"] == ["tenant.created"]
    assert len(await entries(services, log_id)) == 2


# Editing


@on_module_loop
async def test_aggregates_rebuilt_from_the_log_are_what_the_operations_returned(
    services: Services, acme: Founded, admin: Admin
) -> None:
    log_id, by = acme.log_id, Editor(actor=EDITOR, as_of=None)
    await admin.create_policy(log_id, by, policy_id="p", text=PolicyText(expression="true", message="no"))
    policy = await admin.change_policy(
        log_id, by, policy_id="p", text=PolicyText(expression="1 == 1", message="still no")
    )
    rule = await admin.create_access_rule(log_id, by, rule_id="r", effect="forbid", expression="true")
    catalog = await admin.create_catalog(log_id, by, alias="lake", kind="rest", options={"uri": "https://x.example"})
    issued = await admin.create_key(log_id, by, identity="bob@acme.example", roles=["b", "a", "b"])
    assert policy == Policy(id="p", version=2, expression="1 == 1", message="still no")
    assert rule == AccessRule(id="r", version=1, effect=Effect.FORBID, expression="true")
    assert catalog == Catalog(id="lake", version=1, kind="rest", options={"uri": "https://x.example"})

    parts = services.gateway
    store = LogStore(services.appender, partial(parts.database.as_role, parts.roles.gateway), new_group_id=new_group_id)
    application, system = LogApplication(store, log_id), LogApplication(store, services.system.log_id)
    state = await parts.control.current(log_id)

    def rebuild() -> None:
        assert application.load("policy:p", project(Policy)) == policy == state.policies["p"]
        assert application.load("access_rule:r", project(AccessRule)) == rule == state.access_rules["r"]
        assert application.load("catalog:lake", project(Catalog)) == catalog == state.catalogs["lake"]
        key = application.load(aggregate_key(ApiKey, issued.id), project(ApiKey))
        assert key == state.keys[issued.id]
        assert (key.actor, key.roles) == (issued.actor, ("a", "b"))
        tenant = system.load(aggregate_key(Tenant, acme.tenant.hex), project(Tenant))
        assert tenant == Tenant(id=acme.tenant.hex, version=1, name="acme")

    await asyncio.to_thread(rebuild)
    assert {entry.actor for entry in (await entries(services, log_id))[2:]} == {EDITOR}


@on_module_loop
async def test_what_is_retired_is_no_longer_in_force_and_never_comes_back(
    services: Services, acme: Founded, admin: Admin
) -> None:
    log_id = acme.log_id
    await admin.create_policy(log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="no"))
    await admin.create_catalog(log_id, OPERATOR, alias="lake", kind="builtin", options={})
    assert [policy.id for policy in await admin.list_policies(log_id)] == ["p"]
    assert (await admin.get_policy(log_id, policy_id="p")).version == 1
    assert (await admin.retire_policy(log_id, OPERATOR, policy_id="p")).retired
    await admin.retire_catalog(log_id, OPERATOR, alias="lake")
    await admin.retire_access_rule(log_id, OPERATOR, rule_id="first-key")
    assert await admin.list_policies(log_id) == ()
    assert await admin.list_catalogs(log_id) == ()
    assert await admin.list_access_rules(log_id) == ()
    with pytest.raises(NotFoundError, match="'p'"):
        await admin.get_policy(log_id, policy_id="p")
    with pytest.raises(RetiredError, match="policy:p"):
        await admin.retire_policy(log_id, OPERATOR, policy_id="p")
    with pytest.raises(RetiredError):
        await admin.change_policy(log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="no"))
    with pytest.raises(ConflictError, match="policy:p exists already, or has been retired"):
        await admin.create_policy(log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="no"))


@on_module_loop
async def test_what_does_not_exist_cannot_be_changed(acme: Founded, admin: Admin) -> None:
    with pytest.raises(NotFoundError, match="policy:p"):
        await admin.change_policy(
            acme.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="no")
        )
    with pytest.raises(NotFoundError, match="key:k"):
        await admin.revoke_key(acme.log_id, OPERATOR, key_id="k")


@on_module_loop
async def test_a_policy_that_does_not_compile_is_refused_with_its_place(
    services: Services, acme: Founded, admin: Admin
) -> None:
    with pytest.raises(PolicyNotCompiledError) as refused:
        await admin.create_policy(
            acme.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true &&\n  tru(", message="no")
        )
    assert refused.value.line == 2
    assert refused.value.column >= 1
    with pytest.raises(PolicyNotCompiledError):
        # `actor` is a variable of access rules, not of policies.
        await admin.create_policy(
            acme.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="actor == 'a'", message="no")
        )
    with pytest.raises(PolicyNotCompiledError):
        await admin.create_access_rule(acme.log_id, OPERATOR, rule_id="r", effect="permit", expression="result.exists")
    assert len(await entries(services, acme.log_id)) == 2


@on_module_loop
async def test_of_two_concurrent_edits_of_one_object_one_conflicts(
    services: Services, acme: Founded, admin: Admin
) -> None:
    await admin.create_policy(acme.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="no"))
    mine, theirs = (PolicyText(expression="1 == 1", message=message) for message in ("mine", "theirs"))
    results = await asyncio.gather(
        admin.change_policy(acme.log_id, OPERATOR, policy_id="p", text=mine, version=1),
        another_admin(services).change_policy(acme.log_id, OPERATOR, policy_id="p", text=theirs, version=1),
        return_exceptions=True,
    )
    (lost,) = (result for result in results if isinstance(result, BaseException))
    (won,) = (result for result in results if not isinstance(result, BaseException))
    assert isinstance(lost, ConflictError)
    assert await admin.list_policies(acme.log_id) == (won,)


@on_module_loop
async def test_of_two_concurrent_creates_of_one_object_one_conflicts(
    services: Services, acme: Founded, admin: Admin
) -> None:
    results = await asyncio.gather(
        *(
            each.create_catalog(acme.log_id, OPERATOR, alias="lake", kind="rest", options={"uri": f"https://h{number}"})
            for number, each in enumerate([admin, another_admin(services), another_admin(services)])
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(result, ConflictError) for result in results) == 2
    assert len(await admin.list_catalogs(acme.log_id)) == 1


@on_module_loop
async def test_an_edit_that_was_permitted_by_older_rules_is_stale(
    acme: Founded, services: Services, admin: Admin
) -> None:
    state = await services.gateway.control.current(acme.log_id)
    by = Editor(actor=EDITOR, as_of=state.as_of)
    await admin.create_catalog(acme.log_id, by, alias="a", kind="builtin", options={})
    with pytest.raises(StaleEditError):
        await admin.create_catalog(acme.log_id, by, alias="b", kind="builtin", options={})
    with pytest.raises(StaleEditError):
        await admin.retire_catalog(acme.log_id, by, alias="a")
    again = Editor(actor=EDITOR, as_of=(await services.gateway.control.current(acme.log_id)).as_of)
    await admin.create_catalog(acme.log_id, again, alias="b", kind="builtin", options={})
    assert [catalog.id for catalog in await admin.list_catalogs(acme.log_id)] == ["a", "b"]


@on_module_loop
async def test_an_event_of_a_newer_process_stops_edits_too(services: Services, acme: Founded, admin: Admin) -> None:
    await admin.create_catalog(acme.log_id, OPERATOR, alias="lake", kind="builtin", options={})
    event = Event(
        type="catalog.moved",
        version=1,
        key="catalog:lake",
        actor="system",
        occurred_at=NOON,
        data={"id": "lake", "version": 2},
    )
    await services.appender.append(acme.log_id, Group(id=new_group_id(), then=(prepare(event),)))
    with pytest.raises(ControlUnknownError):
        await admin.retire_catalog(acme.log_id, OPERATOR, alias="lake")


@on_module_loop
async def test_nothing_stored_names_a_class_a_secret_or_a_person(
    services: Services, acme: Founded, admin: Admin
) -> None:
    issued = await admin.create_key(acme.log_id, OPERATOR, identity="bob@acme.example", roles=["r"])
    await admin.create_policy(acme.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="no"))
    for entry in [*await stored(services, acme.log_id), *await stored(services, services.system.log_id)]:
        assert not re.search(rb"[a-z_]+\.[a-z_]+:[A-Z]|eventsourcing|topic|argon2|acme\.example", entry)
        for key in (acme.key, issued):
            assert key.secret.encode() not in entry
            assert key.secret.split("_", 2)[2].encode() not in entry
    assert "lp_" not in repr(issued)


class FailingAppender:
    """An appender that fails in one way."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def append(self, *_: object, **__: object) -> Appended | Stale:
        raise self._error


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (LogUnavailableError("gone"), UnavailableError),
        (QueueFullError("full"), UnavailableError),
        (OutcomeUnknownError("perhaps"), CommitStateUnknownError),
    ],
)
@on_module_loop
async def test_a_log_that_cannot_be_written_is_answered_as_for_commits(
    services: Services, acme: Founded, error: Exception, answer: type[Exception]
) -> None:
    lend = partial(services.gateway.database.as_role, services.gateway.roles.gateway)
    store = LogStore(FailingAppender(error), lend, new_group_id=new_group_id)
    failing = another_admin(services, store=store)
    with pytest.raises(answer):
        await failing.create_catalog(acme.log_id, OPERATOR, alias="lake", kind="builtin", options={})


# Limits


@pytest.mark.parametrize("found", ["", "-a", "_a", "A", "a b", "a/b", "ä", "a" * 64, "a\n", None, 7])
@on_module_loop
async def test_an_id_is_a_slug(found: Any, acme: Founded, admin: Admin) -> None:
    with pytest.raises(BadRequestError, match=r"^id: "):
        await admin.create_policy(
            acme.log_id, OPERATOR, policy_id=found, text=PolicyText(expression="true", message="no")
        )
    with pytest.raises(BadRequestError, match=r"^alias: "):
        await admin.create_catalog(acme.log_id, OPERATOR, alias=found, kind="builtin", options={})


def test_ids_up_to_63_characters_are_taken() -> None:
    for text in ("a", "0", "a" * 63, "no-drops_2"):
        assert limits.check_id(text) == text


@on_module_loop
async def test_each_field_is_refused_by_name(acme: Founded, admin: Admin) -> None:
    log_id = acme.log_id
    good: dict[str, Any] = {"expression": "true", "message": "no"}
    for bad, field in (
        ({"message": ""}, "message"),
        ({"message": "x" * 501}, "message"),
        ({"message": "bell \x07"}, "message"),
        ({"message": "\ud800"}, "message"),
        ({"expression": " "}, "expression"),
        ({"expression": "true" + " " * 16_384}, "expression"),
    ):
        with pytest.raises(BadRequestError, match=f"^{field}: "):
            await admin.create_policy(log_id, OPERATOR, policy_id="p", text=PolicyText(**{**good, **bad}))
    with pytest.raises(BadRequestError, match=r"^effect: "):
        await admin.create_access_rule(log_id, OPERATOR, rule_id="r", effect="allow", expression="true")
    with pytest.raises(BadRequestError, match=r"^kind: .*builtin"):
        await admin.create_catalog(log_id, OPERATOR, alias="lake", kind="oracle", options={})
    with pytest.raises(BadRequestError, match=r"^identity: "):
        await admin.create_key(log_id, OPERATOR, identity="", roles=[])
    for roles in (["a b"], [""], [7], [f"r{number}" for number in range(33)], "admin"):
        with pytest.raises(BadRequestError, match=r"^roles: "):
            await admin.create_key(log_id, OPERATOR, identity="bob", roles=roles)  # type: ignore[arg-type]  # on purpose


def test_a_secret_among_a_catalogs_options_is_refused_without_being_repeated() -> None:
    kept = {"uri": "https://polaris.example", "s3.secret-access-key": "secret:s3", "token-refresh-enabled": "true"}
    assert limits.check_options(kept) == kept
    for name, value in (
        ("s3.secret-access-key", "hunter2"),
        ("TOKEN", "hunter2"),
        ("oauth2.client-credential", "id:hunter2"),
        ("uri", "https://ada:hunter2@polaris.example"),
        ("password", 7),
        ("credential", "gateway:hunter2"),
        ("rest.session-token", "hunter2"),
        ("client-certificate", "-----BEGIN PRIVATE KEY-----hunter2"),
        ("certificate-authority", "-----BEGIN CERTIFICATE-----hunter2"),
    ):
        with pytest.raises(BadRequestError, match=f"^options.{name}: ") as refused:
            limits.check_options({name: value})
        assert "hunter2" not in str(refused.value)


def test_options_are_bounded() -> None:
    for options in ({"a b": "x"}, {"": "x"}, {"x": 1}, {"x": "y" * 401}, {f"x{n}": "y" for n in range(33)}):
        with pytest.raises(BadRequestError, match=r"^options"):
            limits.check_options(options)


LOGINS = {
    "token": {"token"},
    "oauth": {"credential", "oauth2-server-uri", "scope", "audience", "resource"},
    "sigv4": {
        "rest.sigv4-enabled",
        "rest.signing-name",
        "rest.signing-region",
        "rest.access-key-id",
        "rest.secret-access-key",
        "rest.session-token",
    },
}


@on_module_loop
@pytest.mark.parametrize("login", LOGINS)
async def test_the_largest_catalog_that_is_accepted_fits_an_event(acme: Founded, admin: Admin, login: str) -> None:
    face = "\N{FACE WITH TEARS OF JOY}"
    options = {
        "uri": "https://" + "x" * 392,
        "uri-overrides": "https://" + "u" * 392,
        "warehouse": face * 400,
        "location": f"s3://{login:-<6}bucket/" + face * 382,
        "s3.endpoint": "https://" + "y" * 392,
        "s3.region": "r" * 63,
        "s3.access-key-id": face * 400,
        "oauth2-server-uri": "https://" + "o" * 392,
        "scope": "s" * 400,
        "audience": "a" * 400,
        "resource": "https://" + "r" * 392,
        "transactions": "sequential",
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "n" * 63,
        "rest.signing-region": "r" * 63,
        "rest.access-key-id": "A" * 128,
        **dict.fromkeys(
            (
                *("token", "credential", "rest.secret-access-key", "rest.session-token", "client-certificate"),
                *("certificate-authority", "s3.secret-access-key", "webhook-secret"),
            ),
            "secret:" + "z" * 63,
        ),
    }
    assert set(options) == limits.KNOWN_OPTIONS["rest"] - {"local-files"}, "that is for locations that are none on S3"
    others = set().union(*LOGINS.values()) - LOGINS[login]
    options = {name: value for name, value in options.items() if name not in others}
    alias = login[0] * 63
    catalog = await admin.create_catalog(acme.log_id, OPERATOR, alias=alias, kind="rest", options=options)
    assert catalog.options == options


UPSTREAM = {"uri": "https://polaris.example/api/catalog"}
OAUTH = UPSTREAM | {"credential": "secret:login"}
SIGV4 = UPSTREAM | {
    "rest.sigv4-enabled": "true",
    "rest.signing-region": "eu-central-1",
    "rest.access-key-id": "AKIA",
    "rest.secret-access-key": "secret:key",
}
TLS = UPSTREAM | {"client-certificate": "secret:mine", "certificate-authority": "secret:theirs"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "uri"),
        ({"uri": "polaris.example"}, "uri"),
        ({"uri": "ftp://polaris.example"}, "uri"),
        ({"uri": "https://"}, "uri"),
        ({"uri": "https://polaris.example:x"}, "uri"),
        ({"uri": "https://polaris.example/?warehouse=w"}, "uri"),
        ({"uri": "https://polaris.example/#top"}, "uri"),
        ({"uri": "https://polaris.example/a b"}, "uri"),
        ({"uri": "https://ada:hunter2@polaris.example"}, "uri"),
        (UPSTREAM | {"url": "https://polaris.example"}, "url"),
        (UPSTREAM | {"token": "hunter2"}, "token"),
        (UPSTREAM | {"location": "/etc"}, "location"),
        (UPSTREAM | {"location": "file:///lake/../etc"}, "location"),
        (UPSTREAM | {"location": "s3://B/x"}, "location"),
        (UPSTREAM | {"s3.endpoint": "minio:9000"}, "s3.endpoint"),
        (UPSTREAM | {"uri-overrides": "https://eu.polaris.example, eu"}, "uri-overrides"),
        (UPSTREAM | {"s3.region": "x.evil.example/"}, "s3.region"),
        (UPSTREAM | {"s3.proxy-uri": "http://proxy.example"}, "s3.proxy-uri"),
        (UPSTREAM | {"py-io-impl": "os.path"}, "py-io-impl"),
        ({"uri": "https://%31.example"}, "uri"),
        ({"uri": "https://[fe80::1%25lo]"}, "uri"),
        ({"uri": "https://10.0.0.1"}, "uri"),
        ({"uri": "http://2130706433:8181/api"}, "uri"),
        (UPSTREAM | {"s3.endpoint": "http://169.254.169.254"}, "s3.endpoint"),
        (UPSTREAM | {"uri-overrides": "https://eu.polaris.example,https://[::1]"}, "uri-overrides"),
        (UPSTREAM | {"s3.access-key-id": "AKIA"}, "s3.access-key-id"),
        # One way to log in, and all of it.
        (OAUTH | {"token": "secret:t"}, "credential"),
        (OAUTH | SIGV4, "rest.sigv4-enabled"),
        (SIGV4 | {"token": "secret:t"}, "rest.sigv4-enabled"),
        (UPSTREAM | {"token": "secret:t", "scope": "catalog"}, "scope"),
        (UPSTREAM | {"oauth2-server-uri": "https://id.example"}, "oauth2-server-uri"),
        (UPSTREAM | {"rest.signing-name": "glue"}, "rest.signing-name"),
        (OAUTH | {"oauth2-server-uri": "id.example"}, "oauth2-server-uri"),
        (OAUTH | {"oauth2-server-uri": "https://id.example/?tenant=t"}, "oauth2-server-uri"),
        (OAUTH | {"oauth2-server-uri": "https://ada:hunter2@id.example"}, "oauth2-server-uri"),
        (OAUTH | {"oauth2-server-uri": "https://127.0.0.1/token"}, "oauth2-server-uri"),
        (OAUTH | {"oauth2-server-uri": "http://id.example"}, "oauth2-server-uri"),
        (OAUTH | {"scope": "a  b"}, "scope"),
        (OAUTH | {"scope": 'a"b'}, "scope"),
        (OAUTH | {"scope": "a\nb"}, "scope"),
        (OAUTH | {"audience": "ä"}, "audience"),
        (OAUTH | {"resource": "lake"}, "resource"),
        (OAUTH | {"resource": "https://lake.example/#a"}, "resource"),
        (OAUTH | {"resource": "https://[lake"}, "resource"),
        (SIGV4 | {"rest.sigv4-enabled": "false"}, "rest.sigv4-enabled"),
        (SIGV4 | {"rest.sigv4-enabled": "True"}, "rest.sigv4-enabled"),
        (SIGV4 | {"rest.signing-region": "eu/central"}, "rest.signing-region"),
        (SIGV4 | {"rest.signing-name": "a b"}, "rest.signing-name"),
        (SIGV4 | {"rest.access-key-id": "AK/IA"}, "rest.access-key-id"),
        (UPSTREAM | {"rest.sigv4-enabled": "true"}, "rest.signing-region"),
        ({name: SIGV4[name] for name in SIGV4 if name != "rest.access-key-id"}, "rest.access-key-id"),
        ({name: SIGV4[name] for name in SIGV4 if name != "rest.secret-access-key"}, "rest.secret-access-key"),
        (TLS | {"uri": "http://polaris.example"}, "certificate-authority"),
        (TLS | {"uri-overrides": "https://a.example, http://b.example"}, "certificate-authority"),
        ({"uri": "http://p.example", "client-certificate": "secret:c"}, "client-certificate"),
    ],
)
def test_an_option_that_is_not_of_its_kinds_form_is_refused(options: dict[str, str], field: str) -> None:
    with pytest.raises(BadRequestError, match=f"^options.{field}: "):
        limits.check_catalog_options("rest", options, EgressRules.parse("public"))


@pytest.mark.parametrize(
    "options",
    [
        UPSTREAM | {"token": "secret:t"},
        OAUTH,
        OAUTH | TLS | {"scope": "PRINCIPAL_ROLE:ALL", "audience": "api://x", "resource": "urn:lake"},
        OAUTH | {"oauth2-server-uri": "https://id.example/realms/lake/protocol/openid-connect/token"},
        OAUTH | {"uri": "http://polaris.example", "oauth2-server-uri": "http://id.example/token"},
        SIGV4,
        SIGV4 | TLS | {"rest.signing-name": "s3tables", "rest.session-token": "secret:session"},
        TLS,
    ],
)
def test_a_catalog_takes_one_way_to_log_in_and_tls_with_any(options: dict[str, str]) -> None:
    assert limits.check_catalog_options("rest", options, EgressRules.parse("public")) == options


def test_requests_are_not_to_be_signed_where_nothing_can_sign_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_options, "find_spec", lambda _name: None)
    with pytest.raises(BadRequestError, match=r"^options.rest.sigv4-enabled: .* pip install 'lakeproof\[streams\]'"):
        limits.check_catalog_options("rest", SIGV4, EgressRules.parse("public"))


GLUE = {
    "location": "s3://lake/glue",
    **{f"{service}.region": "eu-central-1" for service in ("glue", "s3")},
    **{f"{service}.access-key-id": "AKIDEXAMPLE" for service in ("glue", "s3")},
    **{f"{service}.secret-access-key": "secret:aws" for service in ("glue", "s3")},
}


def test_a_catalog_of_glue_takes_what_reaches_glue_and_its_store() -> None:
    endpoints = {
        "glue.endpoint": "https://glue.example",
        "s3.endpoint": "https://s3.example",
        "glue.id": "123456789012",
    }
    for options in (GLUE, GLUE | endpoints):
        assert limits.check_catalog_options("glue", options, EgressRules.parse("public")) == options


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *(({name: text for name, text in GLUE.items() if name != missing}, missing) for missing in GLUE),
        (GLUE | {"glue.secret-access-key": "hunter2"}, "glue.secret-access-key"),
        (GLUE | {"glue.access-key-id": "AK/IA"}, "glue.access-key-id"),
        (GLUE | {"glue.region": "x.evil.example/"}, "glue.region"),
        (GLUE | {"s3.region": "EU"}, "s3.region"),
        (GLUE | {"location": "file:///lake"}, "location"),
        (GLUE | {"location": "s3://lake/../x"}, "location"),
        (GLUE | {"glue.id": "a b"}, "glue.id"),
        (GLUE | {"glue.endpoint": "http://169.254.169.254"}, "glue.endpoint"),
        (GLUE | {"glue.endpoint": "https://10.0.0.1"}, "glue.endpoint"),
        (GLUE | {"s3.endpoint": "https://10.0.0.1"}, "s3.endpoint"),
        (GLUE | {"glue.endpoint": "https://ada:hunter2@glue.example"}, "glue.endpoint"),
        (GLUE | {"glue.endpoint": "glue.example"}, "glue.endpoint"),
        (GLUE | {"uri": "https://glue.example/iceberg"}, "uri"),
        (GLUE | {"token": "secret:t"}, "token"),
        (GLUE | {"glue.profile-name": "admin"}, "glue.profile-name"),
    ],
)
def test_an_option_of_glue_that_is_missing_or_not_of_its_form_is_refused(options: dict[str, str], field: str) -> None:
    with pytest.raises(BadRequestError, match=f"^options.({field}|s3.access-key-id): "):
        limits.check_catalog_options("glue", options, EgressRules.parse("public"))


def test_each_kind_of_catalog_takes_its_own_options() -> None:
    assert limits.check_catalog_options("rest", UPSTREAM, LOOPBACK) == UPSTREAM
    assert limits.check_catalog_options("builtin", {}, LOOPBACK) == {}
    for choice in ("allowed", "refused"):
        assert limits.check_catalog_options("builtin", {"look-alike-names": choice}, LOOPBACK)
    with pytest.raises(
        BadRequestError, match=r"^options.look-alike-names: expected allowed or refused, found 'perhaps'"
    ):
        limits.check_catalog_options("builtin", {"look-alike-names": "perhaps"}, LOOPBACK)
    with pytest.raises(
        BadRequestError, match=r"^options.uri: a catalog of kind builtin takes one of location, look-alike-names"
    ):
        limits.check_catalog_options("builtin", UPSTREAM, LOOPBACK)
    assert limits.KNOWN_OPTIONS.keys() == KINDS.keys()


def test_transactions_that_an_upstream_has_not_are_refused_or_sequential() -> None:
    assert limits.check_catalog_options("rest", UPSTREAM | {"transactions": "sequential"}, LOOPBACK)
    with pytest.raises(BadRequestError, match=r"^options.transactions: expected sequential, found 'atomic'"):
        limits.check_catalog_options("rest", UPSTREAM | {"transactions": "atomic"}, LOOPBACK)


def test_files_of_this_machine_are_allowed_below_a_location_on_it_and_nowhere_else() -> None:
    local = UPSTREAM | {"location": "file:///data/lake", "local-files": "allowed"}
    assert limits.check_catalog_options("rest", local, LOOPBACK) == local
    for change in ({"local-files": "yes"}, {"location": "s3://bucket/lake"}):
        with pytest.raises(BadRequestError, match=r"^options.local-files: expected allowed, with a location file:///…"):
            limits.check_catalog_options("rest", local | change, LOOPBACK)
    with pytest.raises(BadRequestError, match=r"^options.local-files: "):
        limits.check_catalog_options("rest", UPSTREAM | {"local-files": "allowed"}, LOOPBACK)
    with pytest.raises(BadRequestError, match="a catalog of kind builtin takes one of"):
        limits.check_catalog_options("builtin", {"local-files": "allowed"}, LOOPBACK)


@on_module_loop
async def test_only_the_operator_lets_the_gateway_read_files_of_this_machine(acme: Founded, admin: Admin) -> None:
    local = UPSTREAM | {"location": "file:///data/of-acme", "local-files": "allowed"}
    by = Editor(actor=EDITOR, as_of=None)
    with pytest.raises(ForbiddenError, match="only the operator lets the gateway read files of this machine"):
        await admin.create_catalog(acme.log_id, by, alias="mine", kind="rest", options=local)
    made = await admin.create_catalog(acme.log_id, OPERATOR, alias="theirs", kind="rest", options=local)
    assert made.options == local


def test_there_is_room_for_a_thousand_of_a_kind() -> None:
    limits.check_room(range(999), "policies")
    with pytest.raises(UnprocessableError, match="policies"):
        limits.check_room(range(1000), "policies")
