# SPDX-License-Identifier: Apache-2.0
"""
The verified caller of a request. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from gateway.control.plane import ControlState
from gateway.errors import UnauthorizedError
from ledger.format.canonical import Json


class NotInForceError(UnauthorizedError):
    """The credentials are unknown, wrong, revoked or expired; the answer does not say which."""

    def __init__(self) -> None:
        super().__init__("the API key is unknown or no longer in force")


class PrincipalSource(StrEnum):
    """What kind of credentials were verified."""

    API_KEY = "api_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """
    A verified caller of one tenant.

    `actor` (32 hex digits) is the pseudonym of the identity `sub` in the log; `key_id` is the key of the request.
    `issuer` is the actor who issues this actor's keys to that identity, None for the identity's own actor.
    """

    tenant: UUID
    log_id: int
    actor: str
    issuer: str | None
    sub: str
    roles: tuple[str, ...]
    source: PrincipalSource
    key_id: str

    def check_in_force(self, state: ControlState, *, now: datetime) -> None:
        """
        Check that the credentials are in force in `state`, by which the request will be judged, and not expired `now`.

        Raises:
            NotInForceError: if they have been revoked, or have expired.
        """
        key = state.keys.get(self.key_id)
        if key is None or key.is_expired(now):
            raise NotInForceError

    def payload(self) -> Mapping[str, Json]:
        """Return the caller's description for the record of a decision, which is an erasable part."""
        return {
            "actor": self.actor,
            "email": None,
            "issuer": self.issuer,
            "key": self.key_id,
            "roles": list(self.roles),
            "source": self.source.value,
            "sub": self.sub,
        }
