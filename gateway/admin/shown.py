# SPDX-License-Identifier: Apache-2.0
"""
What is shown of each thing that people edit, as JSON: the same by routes and by commands.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gateway.admin.key_issue import IssuedKey, RotatedKey
from gateway.admin.limits import format_expiry
from gateway.control.aggregates import AccessRule, ApiKey, Catalog, Policy, TenantSetting


def policy_shown(policy: Policy) -> dict[str, Any]:
    """Return a policy."""
    return {
        "id": policy.id,
        "version": policy.version,
        "expression": policy.expression,
        "message": policy.message,
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
