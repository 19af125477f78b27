# SPDX-License-Identifier: Apache-2.0
"""
What the gateway's own routes answer, as the document at `/openapi.json` describes it.

The routes do not build these: they answer with what they show, and a test compares every answer with its model. Members
that are not listed are not there.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ledger.format.events import Effect


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PolicyShown(_Answer):
    """A policy in force; a refused client receives `message`."""

    id: str
    version: int
    expression: str
    message: str


class PolicySaved(PolicyShown):
    """A policy that was put in force, and on which inputs it fails."""

    warnings: list[str]


class PoliciesShown(_Answer):
    """The policies in force, oldest first."""

    policies: list[PolicyShown]


class AccessRuleShown(_Answer):
    """An access rule in force; `vocabulary` is the one it was written in."""

    id: str
    version: int
    effect: Effect
    expression: str
    vocabulary: int


class AccessRuleSaved(AccessRuleShown):
    """An access rule that was put in force, and on which inputs it fails."""

    warnings: list[str]


class AccessRulesShown(_Answer):
    """The access rules in force, oldest first."""

    access_rules: list[AccessRuleShown] = Field(alias="access-rules")


class CatalogShown(_Answer):
    """A catalog in force; a secret in its options is the name of one."""

    alias: str
    version: int
    kind: str
    options: dict[str, str]


class CatalogsShown(_Answer):
    """The catalogs in force, oldest first."""

    catalogs: list[CatalogShown]


class KeyIssued(_Answer):
    """A new API key; `secret` is in this answer and nowhere else. Times are RFC 3339, null is never."""

    id: str
    actor: str
    expires_at: str | None
    secret: str


class KeyShown(_Answer):
    """An API key that was not revoked; `issuer` is null if the operator or the identity itself issued it."""

    id: str
    version: int
    prefix: str
    actor: str
    roles: list[str]
    expires_at: str | None
    issuer: str | None


class KeysShown(_Answer):
    """The keys that were not revoked, oldest first."""

    keys: list[KeyShown]


class SettingShown(_Answer):
    """A setting of the tenant; version 0 is the default."""

    id: str
    version: int
    value: str


class SettingsShown(_Answer):
    """The tenant's settings."""

    settings: list[SettingShown]


class StatusShown(_Answer):
    """That all is well."""

    status: str
