"""
The command of `anchoring.py` in its room: how far logs are anchored, and who has vouched for the system log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakeproof.commands.room import OpenRoom
from ledger.anchoring.anchor_log import LogState, read_states
from ledger.anchoring.published import (
    Published,
    Stamped,
    read_newest_signed,
    read_newest_stamp,
    read_published_checkpoint,
)


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
    logs: Sequence[LogState]
    witnessed: bool

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


def age_s(state: LogState, *, now: datetime) -> int | None:
    """Return how old a log's newest anchor is, in whole seconds, or None if it has none."""
    return None if state.anchor is None else max(0, int((now - state.anchor.recorded_at).total_seconds()))


async def read_overview(open_room: OpenRoom) -> Overview:
    """
    Return how far the logs of an installation are anchored, and the system log vouched for.

    Raises:
        BrokenError: if a checkpoint or an anchor of the system log is not as it must be.
        LedgerError: if there is no installation, or no key.
    """
    async with open_room() as room:
        system = await room.find_log("system")
        keys, policy = room.verifier_keys(system.origin), room.witness_policy()
        newest = await read_newest_signed(room.connection, system, keys=keys)
        return Overview(
            origin=system.origin,
            signed_size=None if newest is None else newest[0].size,
            published=await read_published_checkpoint(room.connection, system, keys=keys, policy=policy),
            stamped=await read_newest_stamp(room.connection, system.log_id),
            logs=await read_states(room.connection, system),
            witnessed=policy is not None,
        )
