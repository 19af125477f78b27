# SPDX-License-Identifier: Apache-2.0
"""
How far logs are anchored in the system log, and who has witnessed that one: of all logs for the operator, of one for
its tenant.

What is stored is shown, and no log is verified. A tenant is told nothing about the system log but what covers its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lakeproof.anchor_settings import load_policy
from lakeproof.errors import SettingsError
from lakeproof.installation import Installation
from lakeproof.log_names import find_named_log
from ledger.anchoring.anchor_log import AnchoringState, read_states, read_states_of
from ledger.anchoring.published import (
    Published,
    Stamped,
    read_newest_signed,
    read_newest_stamp,
    read_published_checkpoint,
)
from ledger.anchoring.witness_health import WitnessHealth, WitnessState, read_anchors_around, read_health
from ledger.format import canonical
from ledger.store.read import read_logs
from ledger.store.session import Connection

LAGS_AFTER_S: Final = 60.0
"""A witness that misses an anchor for longer lags: it is asked every few seconds."""
_TROUBLE: Final = {
    WitnessState.COSIGNED: "",
    WitnessState.REFUSED: "it refused the newest checkpoint",
    WitnessState.AWAY: "it did not answer, or not as a witness does",
    WitnessState.NOT_ASKED: "it has not been asked",
}
"""What tenants are told: the answers themselves are about the system log, and for operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """
    The system log's newest signed checkpoint (None: nothing is signed), what is published of it, its newest stamp, and
    the other logs. `witnessed` tells whether a policy decides what is published.
    """

    origin: str
    signed_size: int | None
    published: Published | None
    stamped: Stamped | None
    logs: Sequence[AnchoringState]
    witnessed: bool
    witnesses: Sequence[WitnessHealth] = ()

    def as_json(self, *, now: datetime) -> dict[str, object]:
        """Return all of it as one JSON document."""
        published, stamped = self.published, self.stamped
        return {
            "system": {
                "origin": self.origin,
                "size": self.signed_size,
                "witnessed": self.witnessed,
                "published_size": None if published is None else published.checkpoint.size,
                "cosigned_by": [] if published is None else list(published.cosigned_by),
                "witnesses": [
                    {
                        "name": each.name,
                        "state": each.state.value,
                        "message": each.message,
                        "asked_at": each.asked_at and canonical.format_time(each.asked_at.astimezone(UTC)),
                        "cosigned_size": each.cosigned_size,
                        "cosigned_at": each.cosigned_at and canonical.format_time(each.cosigned_at),
                    }
                    for each in self.witnesses
                ],
                "stamp": None if stamped is None else {"size": stamped.size, "time": stamped.gen_time.isoformat()},
            },
            "logs": [
                {
                    "origin": state.origin,
                    "size": state.size,
                    "anchored_size": None if state.anchor is None else state.anchor.size,
                    "anchored_index": None if state.anchor is None else state.anchor.index,
                    "age_s": age_s(state, now=now),
                }
                for state in self.logs
            ],
        }


def age_s(state: AnchoringState, *, now: datetime) -> int | None:
    """Return how old a log's newest anchor is, in whole seconds, or None if it has none."""
    return None if state.anchor is None else max(0, int((now - state.anchor.recorded_at).total_seconds()))


async def read_overview(installation: Installation, auditor: Connection) -> Overview:
    """
    Return how far the logs of an installation are anchored, and who has witnessed the system log.

    Raises:
        BrokenError: if a checkpoint or an anchor of the system log is not as it must be.
        LedgerError: if there is no installation, or no key.
    """
    system = await find_named_log(installation, auditor, "system")
    keys, policy = installation.open_keys().verifier_keys(system.origin), load_policy(installation.settings)
    newest = await read_newest_signed(auditor, system, keys=keys)
    return Overview(
        origin=system.origin,
        signed_size=None if newest is None else newest[0].size,
        published=await read_published_checkpoint(auditor, system, keys=keys, policy=policy),
        stamped=await read_newest_stamp(auditor, system.log_id),
        logs=await read_states(auditor, system),
        witnessed=policy is not None,
        witnesses=() if policy is None else await read_health(auditor, system.log_id, policy),
    )


def anchors_reader(
    installation: Installation, lend: Callable[[], AbstractAsyncContextManager[Connection]]
) -> Callable[[int], Coroutine[Any, Any, dict[str, Any]]]:
    """
    Return what reads how far one log is anchored, for its tenant; `lend` lends connections of the auditor.
    """

    async def read(log_id: int) -> dict[str, Any]:
        async with lend() as auditor:
            return await _anchors_of(installation, auditor, log_id)

    return read


async def _anchors_of(installation: Installation, auditor: Connection, log_id: int) -> dict[str, Any]:
    """Return as JSON how far a log is signed and anchored, and who has witnessed its newest anchor."""
    system = await find_named_log(installation, auditor, "system")
    keys, policy = installation.open_keys().verifier_keys(system.origin), load_policy(installation.settings)
    (log,) = [each for each in await read_logs(auditor) if each.log_id == log_id]
    (state,) = await read_states_of(auditor, system, [log.origin])
    anchor = state.anchor
    published = await read_published_checkpoint(auditor, system, keys=keys, policy=policy)
    stamped = await read_newest_stamp(auditor, system.log_id)
    covers = anchor is not None and published is not None and anchor.index < published.checkpoint.size
    is_stamped = anchor is not None and stamped is not None and anchor.index < stamped.size
    return {
        "log": log.origin,
        "checkpoint_size": state.size or 0,
        "anchor": None
        if anchor is None
        else {
            "size": anchor.size,
            "root": anchor.root.hex(),
            "recorded_at": canonical.format_time(anchor.recorded_at),
        },
        "published": covers,
        "cosigned_by": list(published.cosigned_by) if covers and published is not None else [],
        "stamped_at": canonical.format_time(stamped.gen_time) if is_stamped and stamped is not None else None,
    }


async def read_vouching(
    installation: Installation, auditor: Connection, log_id: int, *, now: datetime
) -> dict[str, Any]:
    """
    Return as JSON, for its tenant, how far a log is anchored, and how each witness of the system log is: up to which
    size of this log its last cosignature reaches, and for how long it has missed an anchor of this log.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if an anchor is malformed.
    """
    system = await find_named_log(installation, auditor, "system")
    (log,) = [each for each in await read_logs(auditor) if each.log_id == log_id]
    (state,) = await read_states_of(auditor, system, [log.origin])
    anchor = state.anchor
    witnesses: list[dict[str, object]] | None = []
    try:
        policy = load_policy(installation.settings)
    except SettingsError:
        policy, witnesses = None, None
    for each in () if policy is None else await read_health(auditor, system.log_id, policy):
        covered, missed = await read_anchors_around(auditor, system.log_id, log.origin, index=each.cosigned_size or 0)
        behind_s = 0.0 if missed is None else max((now - missed.recorded_at).total_seconds(), 0.0)
        shown: dict[str, object] = {
            "name": each.name,
            "state": each.state.value,
            "size": None if covered is None else covered.size,
            "cosigned_at": each.cosigned_at and canonical.format_time(each.cosigned_at),
            "behind_s": round(behind_s, 3),
            "lags": behind_s > LAGS_AFTER_S,
            "trouble": _TROUBLE[each.state],
        }
        witnesses = [*(witnesses or []), shown]
    return {
        "anchored_size": 0 if anchor is None else anchor.size,
        "anchored_at": None if anchor is None else canonical.format_time(anchor.recorded_at),
        "witnesses": witnesses,
    }
