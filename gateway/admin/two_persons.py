# SPDX-License-Identifier: Apache-2.0
"""
Whether two actors are certainly two persons: a draft is approved by another person than its author.

Guarantee: unknown means no. Two actors are one person here if they have an identity in common, their own or that of
whoever has issued their keys, directly or through others: an issuer knows the secret of the key, and could act with it.
Who an erased actor was is unknown.

The operator at the machine is a person of its own: whether somebody of the tenant has access to the machine, too, is
not in the database.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway.database import outage_as_unavailable
from gateway.errors import ForbiddenError
from gateway.identity.key_rows import person_of
from ledger.format.event import SYSTEM_ACTOR
from ledger.store.log_store import LendConnection
from ledger.store.session import Connection

ISSUERS_MAX: Final = 16
"""Issuers behind one key; a longer chain is not followed, and nobody of it reviews anything."""


class NotAnotherPersonError(ForbiddenError):
    """The reviewer is, or may be, the author."""

    kind = "NotAnotherPersonException"


async def check_two_persons(
    lend: LendConnection, log_id: int, *, author: str, reviewer: str, key_issuers: Collection[str]
) -> None:
    """
    Check that two actors of a tenant's log are certainly two persons; `key_issuers` are who has issued keys in force.

    Raises:
        NotAnotherPersonError: if they are not, or that is unknown.
        UnavailableError: if the database cannot be reached.
    """
    if author == reviewer:
        raise NotAnotherPersonError("expected a review by another person than the author, found the author's own")
    if SYSTEM_ACTOR in {author, reviewer}:
        return
    with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
        async with lend() as connection:
            authors = await _identities_behind(connection, log_id, author, key_issuers)
            reviewers = await _identities_behind(connection, log_id, reviewer, key_issuers)
    if not authors or not reviewers:
        raise NotAnotherPersonError(
            "expected a review by another person than the author, and who one of them is is not known any more, or "
            "cannot be told: let somebody else write the draft again"
        )
    if not authors.isdisjoint(reviewers):
        raise NotAnotherPersonError(
            "expected a review by another person than the author, found one identity behind both, or keys that one of "
            "them has issued to the other, or the same person to both"
        )


async def _identities_behind(
    connection: Connection, log_id: int, actor: str, key_issuers: Collection[str]
) -> frozenset[str]:
    """Return the identities of an actor and of all issuers behind its keys; none if that cannot be told."""
    identities: set[str] = set()
    for _ in range(ISSUERS_MAX):
        person = await person_of(connection, log_id, actor)
        if person is None:
            # Who issues no keys and has no identity vouches for many, and is no person: who signs tokens, for example.
            return frozenset() if actor in key_issuers else frozenset(identities)
        identity, issuer = person
        identities.add(identity)
        if issuer is None:
            return frozenset(identities)
        actor = issuer
    return frozenset()
