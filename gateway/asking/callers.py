# SPDX-License-Identifier: Apache-2.0
"""
The callers that there are, as access rules see them: holders of API keys in force, and those whom others vouch for.

Identity providers and authorities of client certificates vouch for callers whom nobody here knows beforehand. What they
may do follows from their roles, so that one caller stands for all with the same roles: for each role that a rule in
force names, for the roles that a rule names together, and for no role at all. Such a caller has an actor that nobody
has (`NOBODY`): a rule that names an actor speaks of somebody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.commit.gateway import Gateway
from gateway.control.aggregates import ApiKey
from gateway.control.plane import ControlState
from gateway.identity import Principal, PrincipalSource
from gateway.policy.access import IN_CEDAR, JudgedRule
from gateway.policy.engine import ACCESS_RULE
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import compared_with, roles_in_cedar, texts_near

NOBODY: Final = "0" * 32
ROLE_SETS_MAX: Final = 500
"""Of those whom others vouch for, beside at most 1,000 keys in force."""

_NAMES: Final = frozenset(variables_of(ACCESS_RULE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """
    Whoever calls as `actor` with `roles`: the holder of `keys` (their ids), or without keys anybody whom others vouch
    for. `identity` is None if it was erased.
    """

    roles: tuple[str, ...]
    actor: str | None = None
    identity: str | None = None
    keys: tuple[str, ...] = ()

    def principal(self, tenant: UUID, log_id: int) -> Principal:
        """Return the caller as requests have it."""
        return Principal(
            tenant=tenant,
            log_id=log_id,
            actor=self.actor or NOBODY,
            issuer=None,
            sub=self.identity or "",
            roles=self.roles,
            source=PrincipalSource.API_KEY if self.keys else PrincipalSource.JWT,
            key_id=self.keys[0] if self.keys else None,
        )


async def holders(gateway: Gateway, log_id: int, keys: Iterable[ApiKey]) -> list[Caller]:
    """
    Return the holders of those of `keys` that have not expired, in the order of their first ones.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    now = gateway.clock()
    grouped: dict[tuple[str, tuple[str, ...]], list[ApiKey]] = {}
    for key in keys:
        if not key.is_expired(now):
            grouped.setdefault((key.actor, key.roles), []).append(key)
    firsts = {actor: group[0] for (actor, _), group in reversed(grouped.items())}
    names = await asyncio.gather(*(gateway.admin.holder_of(log_id, key) for key in firsts.values()))
    identities = dict(zip(firsts, names, strict=True))
    return [
        Caller(actor=actor, roles=roles, identity=identities[actor], keys=tuple(key.id for key in group))
        for (actor, roles), group in grouped.items()
    ]


def vouched_for(state: ControlState) -> list[Caller]:
    """
    Return a caller for each of the roles that rules in force name, for those that one names together, and one without;
    at most `ROLE_SETS_MAX`.
    """
    sets = dict.fromkeys(_role_sets(rule.judged() for rule in state.access_rules.values()))
    return [Caller(roles=roles) for roles in list(sets)[:ROLE_SETS_MAX]]


def _role_sets(rules: Iterable[JudgedRule]) -> Iterator[tuple[str, ...]]:
    yield ()
    named = [
        roles_in_cedar(rule.expression) if rule.vocabulary == IN_CEDAR else roles_named(rule.expression)
        for rule in rules
    ]
    for roles in named:
        yield from ((role,) for role in roles)
    yield from (tuple(sorted(roles)) for roles in named if len(roles) > 1)


def roles_named(expression: str) -> tuple[str, ...]:
    """
    Return the texts in an expression that it compares with roles; or without any, those that it seems to.
    """
    if compared := (*compared_with(expression, "roles"), *compared_with(expression, "role")):
        return tuple(dict.fromkeys(compared))
    near = texts_near(expression, _NAMES)
    return tuple(dict.fromkeys((*near.get("roles", ()), *near.get("role", ()))))
