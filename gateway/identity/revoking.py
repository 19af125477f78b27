# SPDX-License-Identifier: Apache-2.0
"""
Revokes all API keys of a person in the transaction that erases them.

From then on every process refuses these keys, whatever it has in its cache: each request reads which keys are in force,
and a revocation is a control entry.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from gateway.control.plane import ControlPlane
from gateway.identity.key_rows import revoke_guard
from ledger.erasing.erase import Revocation, Revocations, Revoke
from ledger.format.aggregates import key_of
from ledger.format.event import SYSTEM_ACTOR
from ledger.format.events import prepare_event
from ledger.format.guards import GuardCall
from ledger.store.read import Log


def revoke_keys(control: ControlPlane, *, clock: Callable[[], datetime]) -> Revoke:
    """
    Return the function that makes the revocations of a subject's keys that are in force according to `control`.
    """

    async def revocations(log: Log, subject: str) -> Revocations:
        state = await control.current(log.log_id)
        revoked = [(key, key.revoke()) for key in state.keys.values() if key.actor == subject]
        each = tuple(
            Revocation(
                event=prepare_event(event, key=key_of(event), actor=SYSTEM_ACTOR, occurred_at=clock()),
                guards=(
                    GuardCall("aggregate.change", {"key": key_of(event), "version": event.version}),
                    revoke_guard(key.id),
                ),
            )
            for key, event in revoked
        )
        return Revocations(as_of=state.as_of, each=each)

    return revocations
