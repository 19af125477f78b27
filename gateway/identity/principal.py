"""
Who a request acts for, once its credentials are verified. Values only.
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
    """The credentials are not known, wrong, revoked or expired; which of these is nobody's business."""

    def __init__(self) -> None:
        super().__init__("the API key is unknown or no longer in force")


class PrincipalSource(StrEnum):
    """What kind of credentials were verified."""

    API_KEY = "api_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """
    A verified caller of one tenant.

    `actor` (32 hex digits) is the pseudonym under which the log knows the identity `sub`; `key_id` is the key it came
    with. `issuer` is the actor who issues the keys of this actor to that identity, None if the actor is its own.
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
        Check that the credentials are in force in `state`, the one the request is going to be judged by, and `now`.

        Raises:
            NotInForceError: if they have been revoked, or their time has passed.
        """
        key = state.keys.get(self.key_id)
        if key is None or key.is_expired(now):
            raise NotInForceError

    def payload(self) -> Mapping[str, Json]:
        """Return what the record of a decision keeps of the caller, as an erasable part."""
        return {
            "actor": self.actor,
            "email": None,
            "issuer": self.issuer,
            "key": self.key_id,
            "roles": list(self.roles),
            "source": self.source.value,
            "sub": self.sub,
        }
