# SPDX-License-Identifier: Apache-2.0
"""
Edits of the control plane over HTTP: policies, access rules, catalogs, API keys, settings. `gateway.admin` has the
operations.

The tenant's access rules decide who may edit: the operation is `UPDATE_REPOSITORY_CONFIG` (`READ_REPOSITORY_CONFIG` to
list), the content type is the kind of object (`CONFIG_POLICY`, …) and the path names it (`.config.policy.<id>`). An
edit is appended with the control index it was judged by: if the rules changed meanwhile, it is judged again. The answer
to a saved policy or rule has `warnings`: the inputs on which it fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.admin.application import Admin
from gateway.admin.drafted_edits import ACTIVATE_AT, RETIRE_AT
from gateway.admin.edits import Editor, StaleEditError
from gateway.admin.limits import OVERLAP, OVERLAP_MAX, check_roles, parse_expiry
from gateway.admin.policy_edits import PolicyText, lasting
from gateway.admin.rule_import import ImportedRules
from gateway.admin.shown import (
    access_rule_shown,
    access_rule_step_shown,
    access_rule_version_shown,
    catalog_shown,
    issued_key_shown,
    keys_shown,
    policy_shown,
    rotated_key_shown,
    setting_shown,
)
from gateway.commit.commit_flow import STALE_MAX
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import principal_view
from gateway.control.aggregates import AccessRule, ApiKey, Catalog, Policy, TenantSetting
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.checking import check_upstream
from gateway.http.looking.as_of import as_of_asked, control_as_of
from gateway.http.looking.query import AS_OF, Query
from gateway.http.looking.reading import look
from gateway.http.request import authenticate, body_of, check_access, parse_model
from gateway.identity import Principal
from gateway.identity.key_rows import identities_of
from gateway.policy.access import NOTHING, Grant
from gateway.policy.cedar.files import parse_cedar_file
from gateway.policy.examples import parse_examples
from gateway.policy.rule_files import FILE_BYTES_MAX, parse_rule_file
from gateway.policy.scopes import parse_scope
from gateway.policy.variables import CommitView
from ledger.format.events import AccessRuleCreated, ReviewVerdict

router = APIRouter(prefix="/v1")

BODY_SIZE_BYTES_MAX: Final = 64 * 1024
RULE_FILE_BODY_BYTES_MAX: Final = 2 * FILE_BYTES_MAX
"""A file in JSON: its quotes and line ends are escaped."""
SECOND: Final = timedelta(seconds=1)


class Body(BaseModel):
    """A body; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PolicyContentsBody(Body):
    """
    What an author writes of a policy; a refused client receives `message`.

    `scope` says which commits it governs (null: all), `examples` which it must allow or deny; `reason` is for the
    record.
    """

    expression: str
    message: str
    scope: dict[str, Any] | None = None
    examples: list[Any] | None = None
    reason: str = ""

    def text(self) -> PolicyText:
        """Return it parsed."""
        return PolicyText(
            expression=self.expression,
            message=self.message,
            scope=parse_scope(self.scope),
            examples=parse_examples(self.examples),
        )


class PolicyBody(PolicyContentsBody):
    """A policy to create, in force from the time `activate_at` on (RFC 3339; null: at once)."""

    id: str
    activate_at: str | None = None


class PolicyChangeBody(PolicyContentsBody):
    """
    New contents of a policy, all of them, in force from the time `activate_at` on (RFC 3339; null: at once).

    With `version`, only if that is its newest version.
    """

    version: int | None = None
    activate_at: str | None = None


class AccessRuleBody(Body):
    """
    An access rule to create; of `vocabulary` 3 it is asked about each check of a request, of 4 it is a policy in Cedar.
    """

    id: str
    effect: str
    expression: str
    vocabulary: int = AccessRuleCreated.VERSION


class RuleFileBody(Body):
    """
    The text of a file of rules to import; with `dry_run` it is only checked. Its `format` is that of Nessie's
    authorization rules, "nessie", or of policies in Cedar, "cedar".
    """

    file: str
    format: Literal["nessie", "cedar"] = "nessie"
    dry_run: bool = False


class CatalogBody(Body):
    """A catalog to register under `alias`."""

    alias: str
    kind: str
    options: dict[str, str] = Field(default_factory=dict)


class SettingBody(Body):
    """A new value of a setting; with `version`, only if that is its current version."""

    value: str
    version: int | None = None


class KeyBody(Body):
    """An API key to issue to `identity`; `expires_at` is a time (RFC 3339), or null for never."""

    identity: str
    roles: list[str] = Field(default_factory=list)
    expires_at: str | None = None


class KeyRotationBody(Body):
    """
    A key to rotate; the new one ends at `expires_at` (RFC 3339), or with null when the old one would have.

    The old one stays in force for `overlap_s` seconds, at most 30 days; with 0 it is revoked at once.
    """

    expires_at: str | None = None
    overlap_s: int = Field(default=OVERLAP // SECOND, ge=0, le=OVERLAP_MAX // SECOND)


B = TypeVar("B", bound=Body)
R = TypeVar("R")


@router.post("/policies")
async def create_policy(request: Request) -> Response:
    """Put a policy in force; one that does not compile is refused with line and column."""
    body = await body_as(request, PolicyBody)

    text, activate_at = body.text(), time_of(body.activate_at)

    async def create(admin: Admin, caller: Principal, by: Editor) -> Policy:
        return await admin.create_policy(
            caller.log_id,
            by,
            policy_id=body.id,
            text=text,
            reason=body.reason,
            activate_at=activate_at,
        )

    policy = await edit(request, "policy", body.id, create)
    return created(await saved_policy(request, policy))


@router.get("/policies")
async def list_policies(request: Request) -> Response:
    """List the policies that are in force, or will be; with `as_of` those that were when that entry was recorded."""
    gateway, caller = await may_read(request, "policy")
    as_of = as_of_asked(Query(request, AS_OF))
    if as_of is None:
        state, now = await gateway.control.current(caller.log_id), gateway.clock()
    else:
        role = gateway.roles.tenant(caller.tenant)
        async with gateway.database.as_role(role) as connection:
            state, now = await control_as_of(connection, caller.log_id, as_of)
    return JSONResponse({"policies": [policy_shown(policy, now=now) for policy in lasting(state, now).values()]})


@router.get("/policies/{policy_id}")
async def show_policy(request: Request, policy_id: str) -> Response:
    """Show a policy that is in force, or will be."""
    gateway, caller = await may_read(request, "policy", policy_id)
    policy = await gateway.admin.get_policy(caller.log_id, policy_id=policy_id)
    return JSONResponse(policy_shown(policy, now=gateway.clock()))


@router.put("/policies/{policy_id}")
async def change_policy(request: Request, policy_id: str) -> Response:
    """Change the contents of a policy."""
    body = await body_as(request, PolicyChangeBody)
    text, activate_at = body.text(), time_of(body.activate_at)

    async def change(admin: Admin, caller: Principal, by: Editor) -> Policy:
        return await admin.change_policy(
            caller.log_id,
            by,
            policy_id=policy_id,
            text=text,
            reason=body.reason,
            activate_at=activate_at,
            version=body.version,
        )

    policy = await edit(request, "policy", policy_id, change)
    return JSONResponse(await saved_policy(request, policy))


@router.delete("/policies/{policy_id}")
async def delete_policy(request: Request, policy_id: str) -> Response:
    """
    Take a policy out of force, for ever; the log keeps it, and its id is not used again.

    `?reason=` says why, for the record, and `?retire_at=` when it ends; until then it is in force.
    """
    reason = request.query_params.get("reason", "")
    retire_at = time_of(request.query_params.get("retire_at"), field=RETIRE_AT)

    async def retire(admin: Admin, caller: Principal, by: Editor) -> object:
        return await admin.retire_policy(caller.log_id, by, policy_id=policy_id, reason=reason, retire_at=retire_at)

    await edit(request, "policy", policy_id, retire)
    return Response(status_code=204)


@router.post("/access-rules")
async def create_access_rule(request: Request) -> Response:
    """Put an access rule in force."""
    body = await body_as(request, AccessRuleBody)

    async def create(admin: Admin, caller: Principal, by: Editor) -> AccessRule:
        return await admin.create_access_rule(
            caller.log_id,
            by,
            rule_id=body.id,
            effect=body.effect,
            expression=body.expression,
            vocabulary=body.vocabulary,
        )

    rule = await edit(request, "access_rule", body.id, create)
    return created({**access_rule_shown(rule), "warnings": await warnings_of(request, rule)})


@router.post("/access-rules/import")
async def import_access_rules(request: Request) -> Response:
    """
    Put the rules of a file in force, all or none: one of Nessie's, or of policies in Cedar.

    What cannot be is answered with its place.
    """
    body = await body_as(request, RuleFileBody, size_bytes_max=RULE_FILE_BODY_BYTES_MAX)
    file = parse_cedar_file(body.file) if body.format == "cedar" else parse_rule_file(body.file)

    async def import_all(admin: Admin, caller: Principal, by: Editor) -> ImportedRules:
        return await admin.import_access_rules(caller.log_id, by, file, is_trial=body.dry_run)

    # Without a rule that can be read, it takes the right to any.
    ids = [rule.id for rule in file.rules] or [""]
    imported = await _edit_each(request, "access_rule", ids, import_all)
    return JSONResponse({**imported.shown(), "dry_run": body.dry_run})


@router.get("/access-rules")
async def list_access_rules(request: Request) -> Response:
    """List the access rules in force, each with who put it in force, and when."""
    gateway, caller = await may_read(request, "access_rule")
    steps = await gateway.admin.access_rule_steps(caller.log_id)
    return JSONResponse({"access-rules": [access_rule_step_shown(step) for step in steps]})


@router.get("/access-rules/{rule_id}")
async def show_access_rule(request: Request, rule_id: str) -> Response:
    """Show an access rule in force, with who put it in force, and when."""
    gateway, caller = await may_read(request, "access_rule", rule_id)
    return JSONResponse(access_rule_step_shown(await gateway.admin.access_rule_step(caller.log_id, rule_id=rule_id)))


@router.get("/access-rules/{rule_id}/versions")
async def list_access_rule_versions(request: Request, rule_id: str) -> Response:
    """List what the log has of an access rule, oldest first: who put it in force, and who retired it."""
    gateway, caller = await may_read(request, "access_rule", rule_id)
    steps = await gateway.admin.access_rule_versions(caller.log_id, rule_id=rule_id)
    return JSONResponse({"versions": [access_rule_version_shown(step) for step in steps]})


@router.delete("/access-rules/{rule_id}")
async def delete_access_rule(request: Request, rule_id: str) -> Response:
    """Take an access rule out of force, for ever; the log keeps it, and its id is not used again."""

    async def retire(admin: Admin, caller: Principal, by: Editor) -> object:
        return await admin.retire_access_rule(caller.log_id, by, rule_id=rule_id)

    await edit(request, "access_rule", rule_id, retire, retired=rule_id)
    return Response(status_code=204)


@router.post("/catalogs")
async def create_catalog(request: Request) -> Response:
    """Register a catalog under an alias."""
    body = await body_as(request, CatalogBody)

    async def create(admin: Admin, caller: Principal, by: Editor) -> Catalog:
        return await admin.create_catalog(caller.log_id, by, alias=body.alias, kind=body.kind, options=body.options)

    return created(catalog_shown(await edit(request, "catalog", body.alias, create)))


@router.get("/catalogs")
async def list_catalogs(request: Request) -> Response:
    """List the catalogs in force."""
    gateway, caller = await may_read(request, "catalog")
    catalogs = await gateway.admin.list_catalogs(caller.log_id)
    return JSONResponse({"catalogs": [catalog_shown(catalog) for catalog in catalogs]})


@router.get("/catalogs/{alias}")
async def show_catalog(request: Request, alias: str) -> Response:
    """Show a catalog in force and its options; a secret is shown by its name."""
    gateway, caller = await may_read(request, "catalog", alias)
    return JSONResponse(catalog_shown(await gateway.admin.get_catalog(caller.log_id, alias=alias)))


@router.post("/catalogs/{alias}/check")
async def check_catalog(request: Request, alias: str) -> Response:
    """Ask what is behind an alias whether it answers, takes our credentials, and what it has."""
    gateway, caller = await may_read(request, "catalog", alias)
    catalog = await gateway.admin.get_catalog(caller.log_id, alias=alias)
    found = await check_upstream(
        gateway.catalogs.upstreams, catalog, tenant=caller.tenant, installation=gateway.catalogs.installation
    )
    return JSONResponse(found.shown())


@router.delete("/catalogs/{alias}")
async def delete_catalog(request: Request, alias: str) -> Response:
    """Take an alias out of force, for ever; the log keeps it. Tables, files and its hold on a location stay."""

    async def retire(admin: Admin, caller: Principal, by: Editor) -> object:
        return await admin.retire_catalog(caller.log_id, by, alias=alias)

    await edit(request, "catalog", alias, retire)
    return Response(status_code=204)


@router.post("/keys")
async def create_key(request: Request) -> Response:
    """Issue an API key; its secret is in this answer and nowhere else."""
    body = await body_as(request, KeyBody)
    expires_at = None if body.expires_at is None else parse_expiry(body.expires_at)

    async def create(admin: Admin, caller: Principal, by: Editor) -> dict[str, Any]:
        issued = await admin.create_key(
            caller.log_id, by, identity=body.identity, roles=body.roles, expires_at=expires_at
        )
        return issued_key_shown(issued)

    grant = Grant(identity=body.identity, roles=check_roles(body.roles))
    return created(await edit(request, "key", "", create, grant=grant))


@router.get("/keys")
async def list_keys(request: Request) -> Response:
    """List the keys in force; never their secrets."""
    gateway, caller = await may_read(request, "key")
    return JSONResponse({"keys": await _keys_shown(request, await gateway.admin.list_keys(caller.log_id))})


@router.get("/keys/{key_id}")
async def show_key(request: Request, key_id: str) -> Response:
    """Show a key that was not revoked; never its secret."""
    gateway, caller = await may_read(request, "key", key_id)
    (key,) = await _keys_shown(request, [await gateway.admin.get_key(caller.log_id, key_id=key_id)])
    return JSONResponse(key)


async def _keys_shown(request: Request, keys: Sequence[ApiKey]) -> list[dict[str, Any]]:
    """Return keys, and whose they are to a caller who may know who actors are."""
    looking, holders = await look(request), dict[str, str]()
    if await looking.sight.reads_inputs():
        async with looking.reading() as connection:
            holders = await identities_of(connection, looking.caller.log_id, {key.actor for key in keys})
    return keys_shown(keys, holders, now=looking.gateway.clock())


@router.post("/keys/{key_id}/rotate")
async def rotate_key(request: Request, key_id: str) -> Response:
    """Issue another key to a key's holder, whose secret is in this answer alone; end the old one after the overlap."""
    body = await body_as(request, KeyRotationBody)
    expires_at = None if body.expires_at is None else parse_expiry(body.expires_at)

    async def rotate(admin: Admin, caller: Principal, by: Editor) -> dict[str, Any]:
        overlap = timedelta(seconds=body.overlap_s)
        rotated = await admin.rotate_key(caller.log_id, by, key_id=key_id, expires_at=expires_at, overlap=overlap)
        return rotated_key_shown(rotated)

    gateway, caller = await authenticate(request)
    key = (await gateway.control.current(caller.log_id)).keys.get(key_id)
    # Whether there is such a key is told only to those who may issue and revoke it.
    holder = None if key is None else await gateway.admin.holder_of(caller.log_id, key)
    grant = NOTHING if key is None or holder is None else Grant(identity=holder, roles=key.roles)
    return created(await edit(request, "key", key_id, rotate, grant=grant))


@router.delete("/keys/{key_id}")
async def delete_key(request: Request, key_id: str) -> Response:
    """Revoke a key, for ever, everywhere and at once; the log keeps that there was one."""

    async def revoke(admin: Admin, caller: Principal, by: Editor) -> object:
        return await admin.revoke_key(caller.log_id, by, key_id=key_id)

    await edit(request, "key", key_id, revoke)
    return Response(status_code=204)


@router.get("/settings")
async def list_settings(request: Request) -> Response:
    """List the tenant's settings; version 0 is the default."""
    gateway, caller = await may_read(request, "setting")
    return JSONResponse({"settings": [setting_shown(one) for one in await gateway.admin.list_settings(caller.log_id)]})


@router.get("/settings/{setting_id}")
async def show_setting(request: Request, setting_id: str) -> Response:
    """Show a setting of the tenant; version 0 is the default."""
    gateway, caller = await may_read(request, "setting", setting_id)
    return JSONResponse(setting_shown(await gateway.admin.get_setting(caller.log_id, setting_id=setting_id)))


@router.put("/settings/{setting_id}")
async def change_setting(request: Request, setting_id: str) -> Response:
    """Change a setting of the tenant."""
    body = await body_as(request, SettingBody)

    async def change(admin: Admin, caller: Principal, by: Editor) -> TenantSetting:
        return await admin.change_setting(
            caller.log_id, by, setting_id=setting_id, value=body.value, version=body.version
        )

    return JSONResponse(setting_shown(await edit(request, "setting", setting_id, change)))


async def edit(
    request: Request,
    kind: str,
    thing: str,
    act: Callable[[Admin, Principal, Editor], Awaitable[R]],
    *,
    grant: Grant = NOTHING,
    retired: str | None = None,
) -> R:
    """Make one edit of one thing, as `_edit_each` does of several."""
    return await _edit_each(request, kind, [thing], act, grant=grant, retired=retired)


async def _edit_each(
    request: Request,
    kind: str,
    things: Sequence[str],
    act: Callable[[Admin, Principal, Editor], Awaitable[R]],
    *,
    grant: Grant = NOTHING,
    retired: str | None = None,
) -> R:
    """
    Check access to each of `things` for one edit and make it; if the rules changed in between, check again.

    `grant` is the key that it issues, `retired` the access rule that it retires.
    """
    gateway, caller = await authenticate(request)
    for _ in range(STALE_MAX):
        views = [_view(kind, thing, "configure") for thing in things]
        # By the oldest: what changed after it, while the others were checked, makes the edit stale.
        as_of = min(
            [await check_access(gateway, caller, request, view, grant=grant, retired=retired) for view in views]
        )
        try:
            return await act(gateway.admin, caller, editor_of(caller, as_of))
        except StaleEditError:
            continue
    raise UnavailableError("access rules changed too often meanwhile; nothing was changed")


def editor_of(caller: Principal, as_of: int) -> Editor:
    """Return who edits, as a caller whose access was judged by the control entry at index `as_of`."""
    return Editor(
        actor=caller.actor,
        as_of=as_of,
        caller=principal_view(caller),
        principal=caller.payload(),
        key_id=caller.key_id,
        # A key's own access token stands for the key, which ends when the key does.
        ends_at=caller.ends_at if caller.key_id is None else None,
    )


def verdict_of(text: str) -> ReviewVerdict:
    """
    Return the verdict of a review.

    Raises:
        BadRequestError: if it is none.
    """
    if text not in set(ReviewVerdict):
        raise BadRequestError(f"expected one of {', '.join(ReviewVerdict)}, found {text!r:.80}", field="verdict")
    return ReviewVerdict(text)


async def may_read(request: Request, kind: str, thing: str = "") -> tuple[Gateway, Principal]:
    """Authenticate the caller, and check that they may read the configuration of that kind; of one thing, or all."""
    gateway, caller = await authenticate(request)
    await check_access(gateway, caller, request, _view(kind, thing, "inspect"))
    return gateway, caller


async def may_edit(request: Request, kind: str, thing: str) -> tuple[Gateway, Principal]:
    """
    Authenticate the caller, and check that they may edit one thing of that kind, before work that an edit needs and
    that saves nothing itself.
    """
    gateway, caller = await authenticate(request)
    await check_access(gateway, caller, request, _view(kind, thing, "configure"))
    return gateway, caller


def _view(kind: str, thing: str, verb: str) -> CommitView:
    """Return a part of the tenant's configuration as access rules see it."""
    return CommitView(catalog="", namespace=(), name=thing, kind=kind, operation=f"{kind}.{verb}")


async def warnings_of(request: Request, saved: Policy | AccessRule) -> list[str]:
    """Return on which inputs what was saved fails."""
    gateway, caller = await authenticate(request)
    effect = saved.effect if isinstance(saved, AccessRule) else None
    return list(await gateway.admin.warnings(caller.log_id, saved.program(), effect=effect))


async def saved_policy(request: Request, policy: Policy) -> dict[str, Any]:
    """Return a policy that was saved, given its newest version, and on which inputs that one fails."""
    gateway, _ = await authenticate(request)
    return {**policy_shown(policy, now=gateway.clock()), "warnings": await warnings_of(request, policy)}


def time_of(text: str | None, *, field: str = ACTIVATE_AT) -> datetime | None:
    """Return the time that a field names, if any."""
    return None if text is None else parse_expiry(text, field=field)


async def body_as(request: Request, model: type[B], *, size_bytes_max: int = BODY_SIZE_BYTES_MAX) -> B:
    """Authenticate the caller, and return the request's body."""
    await authenticate(request)
    return parse_model(model, await body_of(request, size_bytes_max=size_bytes_max))


def created(body: dict[str, Any]) -> Response:
    """Return the answer to what was created."""
    return JSONResponse(body, status_code=201)
