# SPDX-License-Identifier: Apache-2.0
"""
What is shown of each thing that people edit, as JSON: the same by routes and by commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gateway.admin.key_issue import IssuedKey, RotatedKey
from gateway.admin.limits import format_expiry
from gateway.admin.policy_edits import examples_of
from gateway.admin.restriction_edits import NOT_ENFORCED
from gateway.admin.versions import Step
from gateway.control.aggregates import (
    AccessRule,
    ApiKey,
    Catalog,
    Policy,
    Restriction,
    TenantSetting,
    scope_of,
)
from gateway.control.drafts import Draft
from gateway.policy.examples import format_examples
from gateway.policy.restrictions.contents import MEMBERS, format_contents
from gateway.policy.scopes import format_scope
from ledger.format import canonical
from ledger.format.events import PolicyContents, RestrictionContents


def policy_shown(policy: Policy, *, now: datetime) -> dict[str, Any]:
    """
    Return a policy, given its newest version: the version that is in force, or else the first that will be.

    `coming` are the versions that come into force after that one, and when; `retired_from` is when the policy ends.
    """
    coming: list[Policy] = []
    version: Policy | None = policy if not policy.retired or policy.is_over(now) else policy.before
    while version is not None and version.active_from is not None and version.active_from > now:
        coming.insert(0, version)
        version = version.before
    if version is None and not coming:
        coming = [policy]  # it ends before it would begin
    shown = version if version is not None else coming.pop(0)
    return {
        "id": shown.id,
        "version": shown.version,
        "in_force": version is not None and not shown.retired,
        **contents_shown(shown.contents()),
        "reason": shown.reason,
        "active_from": None if shown.retired else format_expiry(shown.active_from),
        "retired_from": format_expiry(policy.active_from) if policy.retired else None,
        "coming": [{"version": each.version, "active_from": format_expiry(each.active_from)} for each in coming],
    }


def contents_shown(contents: PolicyContents | None) -> dict[str, Any]:
    """Return the contents of a policy as an author writes them; all null if there are none."""
    if contents is None:
        return dict.fromkeys(("expression", "message", "scope", "examples"))
    return {
        "expression": contents.expression,
        "message": contents.message,
        "scope": format_scope(scope_of(contents)),
        "examples": format_examples(examples_of(contents.examples)),
    }


def draft_shown(draft: Draft[PolicyContents], *, author: str | None = None) -> dict[str, Any]:
    """Return a draft that waits for a review; one that `retires` has no contents. `author` is an actor, if known."""
    return _draft_shown(draft, contents_shown(draft.contents), author)


def policy_step_shown(step: Step[Policy]) -> dict[str, Any]:
    """Return one version of a policy as the log has it; one that retired it has no contents."""
    policy = step.thing
    contents = contents_shown(None if policy.retired else policy.contents())
    return _step_shown(step, {**contents, "active_from": format_expiry(policy.active_from)})


def restriction_shown(restriction: Restriction) -> dict[str, Any]:
    """Return a restriction as an author writes it, and that reads do not enforce it yet."""
    return {
        "id": restriction.id,
        "version": restriction.version,
        **format_contents(restriction.contents),
        "reason": restriction.reason,
        "enforced": False,
        "note": NOT_ENFORCED,
    }


def restriction_contents_shown(contents: RestrictionContents | None) -> dict[str, Any]:
    """Return the contents of a restriction as an author writes them; all null if there are none."""
    return dict.fromkeys(MEMBERS) if contents is None else dict(format_contents(contents))


def restriction_draft_shown(draft: Draft[RestrictionContents], *, author: str | None = None) -> dict[str, Any]:
    """Return a draft that waits for a review; one that `retires` has no contents. `author` is an actor, if known."""
    return _draft_shown(draft, restriction_contents_shown(draft.contents), author)


def restriction_step_shown(step: Step[Restriction]) -> dict[str, Any]:
    """Return one version of a restriction as the log has it; one that retired it has no contents."""
    restriction = step.thing
    return _step_shown(step, restriction_contents_shown(None if restriction.retired else restriction.contents))


def _draft_shown(draft: Draft[Any], contents: dict[str, Any], author: str | None) -> dict[str, Any]:
    return {
        "id": draft.id,
        "version": draft.version,
        "retires": draft.contents is None,
        **contents,
        "reason": draft.reason,
        "author": author,
    }


def _step_shown(step: Step[Any], contents: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": step.thing.version,
        "retired": step.thing.retired,
        **contents,
        "reason": step.reason,
        "author": step.author,
        "reviewer": step.reviewer,
        "review_reason": step.review_reason,
        "recorded_at": canonical.format_time(step.entry.recorded_at),
        "index": step.entry.index,
    }


def access_rule_shown(rule: AccessRule) -> dict[str, Any]:
    """Return an access rule."""
    return {
        "id": rule.id,
        "version": rule.version,
        "effect": rule.effect,
        "expression": rule.expression,
        "vocabulary": rule.vocabulary,
    }


def access_rule_step_shown(step: Step[AccessRule]) -> dict[str, Any]:
    """Return an access rule with the entry that put it in force: who wrote that, and when."""
    return {**access_rule_shown(step.thing), **_written(step)}


def access_rule_version_shown(step: Step[AccessRule]) -> dict[str, Any]:
    """Return what the log has of an access rule: that it was put in force, or retired. It has no reason."""
    return {**access_rule_shown(step.thing), "retired": step.thing.retired, **_written(step)}


def _written(step: Step[Any]) -> dict[str, Any]:
    return {
        "author": step.author,
        "recorded_at": canonical.format_time(step.entry.recorded_at),
        "index": step.entry.index,
    }


def catalog_shown(catalog: Catalog) -> dict[str, Any]:
    """Return a catalog; a secret in its options is the name of one."""
    return {
        "alias": catalog.id,
        "version": catalog.version,
        "kind": catalog.kind,
        "options": dict(catalog.options),
    }


def setting_shown(setting: TenantSetting) -> dict[str, Any]:
    """Return a setting of the tenant."""
    return {"id": setting.id, "version": setting.version, "value": setting.value}


def key_shown(key: ApiKey, *, now: datetime) -> dict[str, Any]:
    """Return a key that was not revoked, without its secret."""
    return {
        "id": key.id,
        "version": key.version,
        "prefix": key.prefix,
        "actor": key.actor,
        "issuer": key.issuer,
        "roles": list(key.roles),
        "expires_at": format_expiry(key.expires_at),
        "expired": key.is_expired(now),
        "replaced_by": key.replaced_by,
    }


def keys_shown(keys: Iterable[ApiKey], holders: Mapping[str, str], *, now: datetime) -> list[dict[str, Any]]:
    """Return keys that were not revoked, and whose they are: `holders` has what may be told of that, by actor."""
    return [{**key_shown(key, now=now), "principal": holders.get(key.actor)} for key in keys]


def issued_key_shown(key: IssuedKey) -> dict[str, Any]:
    """Return a key that was just made, with its secret: this once."""
    return {
        "id": key.id,
        "actor": key.actor,
        "expires_at": format_expiry(key.expires_at),
        "secret": key.secret,
    }


def rotated_key_shown(rotated: RotatedKey) -> dict[str, Any]:
    """Return a key that was just made in place of another one: this once."""
    return {
        **issued_key_shown(rotated.key),
        "replaces": rotated.replaced,
        "replaced_ends_at": format_expiry(rotated.replaced_ends_at),
    }
