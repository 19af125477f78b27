# SPDX-License-Identifier: Apache-2.0
"""Lives of a signer's keys, as a system log records them: made by the real statements, without a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from ledger.format.events import EventData, SignedTree, SignerCreated, SignerRetired, SignerRotated
from ledger.format.key_history import state_retirement, state_rotation
from ledger.format.note import VerifierKey
from ledger.format.sequence import Group, SequencedEntry
from ledger.signing.keys import FileKey, NoteSigner
from ledger.signing.rotation import operation_group
from testkit.ledger.logs import START, event, sequenced

SYSTEM = "logs.example/system"
ORIGIN = "logs.example/one"
ROOT = bytes(range(32))


def signer(number: int, name: str = SYSTEM) -> NoteSigner:
    """Return the signer with key `number`."""
    return NoteSigner(name=name, key=FileKey.from_seed(bytes([number]) * 32))


def pin(number: int, name: str = SYSTEM) -> VerifierKey:
    return signer(number, name).verifier_key


def created(number: int) -> SignerCreated:
    return SignerCreated(vkey=pin(number).format())


def rotated(previous: int, successor: int) -> SignerRotated:
    return state_rotation(signer(previous), signer(successor))


def trees(**sizes: int) -> list[SignedTree]:
    return [SignedTree(origin=f"logs.example/{name}", size=size, root=ROOT.hex()) for name, size in sizes.items()]


def retired(number: int, successor: int, ends: Sequence[SignedTree], *, by: Sequence[int] = ()) -> list[SignerRetired]:
    signers = [signer(key) for key in by or (number, successor)]
    return state_retirement(signers, retired=pin(number), successor=pin(successor), trees=ends)


def rows(*events: EventData, log: str = SYSTEM) -> list[SequencedEntry]:
    """Return the rows of a system log that records these, with something else before each."""
    groups = []
    for number, one in enumerate(events):
        groups.append(Group(id=UUID(int=number + 1), then=(event(number),)))
        groups.append(replace(operation_group(one, "signer:0", occurred_at=START), id=UUID(int=1_000 + number)))
    return sequenced(groups, log=log)[0]


def entries(*events: EventData, log: str = SYSTEM) -> list[bytes]:
    """Return the entries of such a log."""
    return [row.entry for row in rows(*events, log=log)]


LIFE: tuple[EventData, ...] = (created(1), rotated(1, 2), *retired(1, 2, trees(one=7, system=9)), rotated(2, 3))
