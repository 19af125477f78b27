# SPDX-License-Identifier: Apache-2.0
"""Logs that continue another log, and first entries that only claim to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from ledger.errors import Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.event import Event, prepare
from ledger.format.events import LogContinued, to_data
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import Group, SequencedEntry
from testkit.ledger.logs import START, TENANT, groups, noise, sequenced, write_directory

ORIGIN = "logs.example/" + TENANT.hex
SEED = b"o" * 32
LAST = 300


def key(name: str) -> Ed25519Signer:
    return Ed25519Signer.from_seed(name=name, seed=SEED)


def continued(origin: str, *, by: Ed25519Signer | None = None) -> LogContinued:
    """Return what the log after `origin` begins with, its last note signed `by` that key."""
    text = format_checkpoint(Checkpoint(origin=origin, size=LAST, root=noise("root")))
    note = sign_note(text, [by or key(origin)]).decode()
    return LogContinued(origin=origin, note=note, size=200, root=noise("held").hex())


def rows_after(first: LogContinued | None, *, log: str) -> list[SequencedEntry]:
    """Return the rows of a log that begins with `first`."""
    begun = []
    if first is not None:
        event = Event(type=first.TYPE, version=1, key="log:a", actor="system", occurred_at=START, data=to_data(first))
        begun = [Group(id=UUID(int=7), then=(prepare(event),))]
    return sequenced([*begun, *groups(20)], log=log)[0]


def links(origin: str) -> dict[str, tuple[LogContinued | None, Fault]]:
    """Return first entries that do not continue `origin`, and what is said of each."""
    link = continued(origin)
    stranger = Ed25519Signer.from_seed(name=origin, seed=bytes(32))
    return {
        "none": (None, Fault.ORIGIN),
        "another": (continued(f"{origin}/2"), Fault.ORIGIN),
        "changed": (replace(link, note=link.note.replace(f"\n{LAST}\n", f"\n{LAST + 1}\n")), Fault.SIGNATURE),
        "stranger": (continued(origin, by=stranger), Fault.SIGNATURE),
        "no note": (replace(link, note="no note"), Fault.ENTRY),
    }


NAMES = sorted(links(ORIGIN))


def export(path: Path, first: LogContinued | None, signer: Ed25519Signer | None = None) -> Path:
    log = f"{ORIGIN}/2"
    return write_directory(path, rows_after(first, log=log), signer or key(log))
