# SPDX-License-Identifier: Apache-2.0
"""
Appends anchors to the system log in PostgreSQL: size and root of the logs that were signed since their last anchor.

What the interval guarantees: whatever a log has signed is in the system log at most `interval_s` later, as long as the
database accepts entries and the signer works. The next checkpoint of the system log covers it, and so do the witnesses
and the authority that see that checkpoint. So a log, or the end of one, can vanish without contradicting what others
hold only if it is younger than both intervals together. Nothing is appended while no log grows.

Guarantee: an anchor is of a checkpoint that the log's own key has signed, sizes grow from anchor to anchor, and each is
in the system log once. The last anchors are read from the system log itself. Any number of processes may anchor: a
guarded row counts the groups of anchors, so that of two that have read the same state one appends, and the other learns
of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from ledger.anchoring.anchors import Anchor, anchor_key, parse_anchor
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.canonical import Json
from ledger.format.checkpoint import Checkpoint
from ledger.format.entry import Branch, parse_entry
from ledger.format.event import GROUP_EVENTS_MAX, SYSTEM_ACTOR, derived_group_id
from ledger.format.events import LogsAnchored, prepare_event, to_data
from ledger.format.guards import GuardCall
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection

QUERIES: Final = load_queries("ledger.store", "anchoring.sql")
ANCHORS_KEY: Final = "logs:anchored"
"""The guarded row that counts the groups of anchors."""

_log = logging.getLogger(__name__)


class Append(Protocol):
    """Appends a group to a log, durably."""

    async def __call__(self, log_id: int, group: Group, /) -> Appended | Stale: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoringState:
    """How far one log is signed and anchored; None if it is not. `note` is its newest signed checkpoint."""

    log_id: int
    origin: str
    size: int | None
    note: bytes | None
    anchor: Anchor | None

    @property
    def moved(self) -> bool:
        """Whether something was signed that is not anchored."""
        return self.size is not None and self.size > (self.anchor.size if self.anchor else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """The result of one round: the checkpoints that were anchored, and by origin why others were refused."""

    checkpoints: tuple[Checkpoint, ...]
    refused: Mapping[str, BrokenError | FormatError]


async def read_states(connection: Connection, system: Log) -> list[AnchoringState]:
    """
    Return how far every log but the system's own is signed and anchored; `connection` reads as the auditor.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if an anchor in the system log is malformed.
    """
    origins = [log.origin for log in await read_logs(connection) if log.log_id != system.log_id]
    return await read_states_of(connection, system, origins)


async def read_states_of(connection: Connection, system: Log, origins: Sequence[str]) -> list[AnchoringState]:
    """
    Return the same of the logs of some origins. Raises as `read_states`.
    """
    parameters = {"system": system.log_id, "origins": origins, "keys": [anchor_key(origin) for origin in origins]}
    rows = await (await connection.execute(QUERIES["anchoring_states"], parameters)).fetchall()
    return [
        AnchoringState(
            log_id=log_id,
            origin=origin,
            size=size,
            note=None if note is None else bytes(note),
            anchor=None if entry is None else _anchor(bytes(entry), origin),
        )
        for log_id, origin, size, note, entry in rows
    ]


async def anchor_logs(
    connection: Connection,
    system: Log,
    append: Append,
    *,
    open_note: Callable[[bytes, str], Checkpoint],
    clock: Callable[[], datetime],
    group_max: int = GROUP_EVENTS_MAX,
) -> Anchored:
    """
    Append to the system log an anchor of every log that was signed since its last one, at most `group_max` per group.

    `connection` reads as the auditor. `open_note` opens a note as a checkpoint of the log of an origin; a log whose
    note it refuses is in `refused`, and the others are anchored. If another process has anchored meanwhile, the rest
    waits for the next round.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if an anchor in the system log is malformed.
        LedgerError: if the system log cannot be written.
    """
    # The count is read first: later anchors make the guard fail, earlier ones are seen below.
    version = await _version(connection, system)
    checkpoints: list[Checkpoint] = []
    refused: dict[str, BrokenError | FormatError] = {}
    for state in await read_states(connection, system):
        if state.moved and state.note is not None:
            try:
                checkpoints.append(_checked(open_note(state.note, state.origin), state))
            except (BrokenError, FormatError) as error:
                refused[state.origin] = error
    anchored: list[Checkpoint] = []
    for at in range(0, len(checkpoints), group_max):
        piece = checkpoints[at : at + group_max]
        version += 1
        outcome = await append(system.log_id, _group(piece, version, now=clock()))
        if not (isinstance(outcome, Appended) and outcome.branch is Branch.THEN):
            _log.info("anchors: another process has appended some in between")
            break
        anchored += piece
    return Anchored(checkpoints=tuple(anchored), refused=refused)


def _group(checkpoints: Sequence[Checkpoint], version: int, *, now: datetime) -> Group:
    """Return the group that brings the count to `version`; its id is the same for the same anchors, whoever submits."""
    anchors = [LogsAnchored(origin=one.origin, root=one.root.hex(), size=one.size) for one in checkpoints]
    content: Json = {"anchors": [to_data(one) for one in anchors], "version": version}
    events = tuple(
        prepare_event(one, key=anchor_key(one.origin), actor=SYSTEM_ACTOR, occurred_at=now) for one in anchors
    )
    first = version == 1
    guard = GuardCall(
        "aggregate.create" if first else "aggregate.change",
        {"key": ANCHORS_KEY} if first else {"key": ANCHORS_KEY, "version": version},
    )
    return Group(id=derived_group_id(LogsAnchored.TYPE, content), then=events, guard=(guard,))


def _checked(checkpoint: Checkpoint, state: AnchoringState) -> Checkpoint:
    if (checkpoint.origin, checkpoint.size) != (state.origin, state.size):
        expected, found = f"{state.origin} at size {state.size}", f"{checkpoint.origin} at size {checkpoint.size}"
        raise BrokenError(Fault.CHECKPOINT, where="ledger.checkpoints", expected=expected, found=found)
    return checkpoint


def _anchor(entry: bytes, origin: str) -> Anchor:
    try:
        anchor = parse_anchor(parse_entry(entry))
    except FormatError as error:
        raise BrokenError(Fault.ANCHOR, where="ledger.entries", expected="an anchor", found=error) from error
    if anchor.origin != origin:
        raise BrokenError(Fault.ANCHOR, where="ledger.entries", expected=origin, found=anchor.origin)
    return anchor


async def _version(connection: Connection, system: Log) -> int:
    parameters = {"log_id": system.log_id, "key": ANCHORS_KEY}
    row = await (await connection.execute(QUERIES["anchoring_version"], parameters)).fetchone()
    return 0 if row is None else int(row[0])
