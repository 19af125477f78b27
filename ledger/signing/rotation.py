# SPDX-License-Identifier: Apache-2.0
"""
The lifecycle of the signer's keys: a new key signs together with the previous one, and alone once that is retired.

Rotation:
1. The new private half is written to the disk, or is in an agent. The ring lists the key as joining, with the statement
   that both keys have signed.
2. The system log records it (`signer.rotated`).
3. The ring lists it as active. From here on both keys sign every checkpoint, until the old one is retired.

Retirement, once a checkpoint of the system log covers the rotation:
1. What the old key has signed last for each log is kept, with the statement over it that both keys have signed.
2. The ring lists the key as retiring: it signs nothing from here on.
3. The system log records what it has signed last (`signer.retired`, in pages).
4. The private half is destroyed, then the ring lists the key as retired.

Guarantee: if this stops between two steps, the signer continues with what the ring says, and `finish`, `rotate` and
`retire` resume it. The system log records the same each time, under ids derived from it.

A step that changes the directory holds its lock. So it happens between two rounds of signing, and what the old key has
signed last is known exactly. Appending holds no lock, because the signer may have to confirm the log meanwhile.

Keys of ML-DSA-44 have another lifecycle, which does not affect the one above; the active key signs the ring. A key is
added, signs together with the previous one, and is retired; none of that happens by itself. Adding: the private half is
on the disk before the ring lists it; it signs from the next checkpoint on. To replace a key without a gap, add another,
let verifiers pin it, and retire. Retiring ends the older of two keys, or the only one. It changes the ring first, then
destroys the private half. If a crash comes between, the next change of the keys destroys it, and retiring again
resumes. The log does not record these keys: an auditor pins one as the first key was pinned, outside the log.

Whoever changes keys runs one round of a signer before, so that the log accepts what is appended, and one after, so
that the new keys sign at once. While `lakeproof up` runs, that signer stands by.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from ledger.errors import KeyUnavailableError, RotationError
from ledger.format.canonical import Json
from ledger.format.cosignature import MlDsaKey
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import (
    EventData,
    SignedTree,
    SignerCreated,
    SignerRetired,
    SignerRotated,
    prepare_event,
    to_data,
)
from ledger.format.key_history import state_retirement, state_rotation
from ledger.format.note import VerifierKey
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.key_ring import KeyLife, KeyRecord, KeySource, MlDsaRecord
from ledger.signing.keys import SEED_SIZE_BYTES, FileKey, NoteSigner, SigningKey, read_seed
from ledger.signing.ssh_agent import find_key
from ledger.signing.stored_keys import (
    destroy_key,
    destroy_strays,
    holds_ml_dsa_key,
    read_retirement,
    write_later_key,
    write_ml_dsa_key,
    write_retirement,
)

LOCK_TIMEOUT_S: Final = 30.0
"""A round of signing holds the directory for well under this, unless its disk or its agent is stuck."""
AppendToSystem: TypeAlias = Callable[[Group], Awaitable[Appended | Stale]]
"""Appends a group to the system log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that is to join; `seed` is its private half, None if an agent holds that."""

    key: SigningKey
    seed: bytes | None = field(repr=False)


def new_file_key(*, random: Callable[[int], bytes] = os.urandom) -> NewKey:
    """
    Return a new key for the key directory; `random` gives that many random bytes.
    """
    seed = random(SEED_SIZE_BYTES)
    return NewKey(key=FileKey.from_seed(seed), seed=seed)


def imported_file_key(path: Path) -> NewKey:
    """
    Return the key in an existing file. It is copied, and the file stays.

    Raises:
        KeyDirectoryError: if others may read the file, or it holds no key.
        OSError: if it cannot be read.
    """
    seed = read_seed(path)
    return NewKey(key=FileKey.from_seed(seed), seed=seed)


def agent_key(socket: Path, key_id: str) -> NewKey:
    """
    Return a key that the agent behind `socket` holds.

    Raises:
        KeyUnavailableError: if it holds no such key, or cannot be reached.
    """
    return NewKey(key=find_key(socket, key_id), seed=None)


class KeyRotation:
    """Changes the keys of one signer. `origin` is the system log's, `clock` gives the time of the events."""

    def __init__(
        self, directory: KeyDirectory, *, origin: str, append: AppendToSystem, clock: Callable[[], datetime]
    ) -> None:
        self._directory = directory
        self._origin = origin
        self._append = append
        self._clock = clock

    async def record_first_key(self) -> None:
        """
        Record the first key in the system log, unless that has been done.

        Raises:
            LedgerError: if it cannot be appended.
        """
        key = self._directory.first_verifier_key(self._origin)
        await self._record(SignerCreated(vkey=key.format()), key)

    async def finish(self) -> KeyRecord | None:
        """
        Resume an interrupted rotation or retirement, and return its key; None if there is none.

        Raises:
            LedgerError: if the log or the directory cannot be written.
        """
        ring = self._directory.keys.ring
        if (joining := ring.find(KeyLife.JOINING)) is not None:
            return await self._finish_rotation(joining)
        if (retiring := ring.find(KeyLife.RETIRING)) is not None:
            return await self._finish_retirement(retiring)
        return None

    async def rotate(self, make: Callable[[], NewKey]) -> KeyRecord:
        """
        Let a new key join and sign together with the active one; return it. An interrupted rotation is resumed.

        Raises:
            RotationError: if an older key still overlaps, or the new one was used before.
            KeyUnavailableError: if one of the two keys does not sign.
            LedgerError, OSError: if the log or the directory cannot be written; the next call resumes.
        """
        resumed = await self.finish()
        if resumed is not None and resumed.life is KeyLife.ACTIVE:
            return resumed
        await self.record_first_key()
        return await self._finish_rotation(await asyncio.to_thread(self._join, make))

    async def retire(self) -> KeyRecord:
        """
        Let the overlapping key sign no more and destroy its private half; return it. An interrupted retirement is
        resumed.

        Raises:
            RotationError: if no key overlaps, or no signed checkpoint covers the rotation yet.
            KeyUnavailableError: if the active key does not sign.
            LedgerError, OSError: if the log or the directory cannot be written; the next call resumes.
        """
        resumed = await self.finish()
        if resumed is not None and resumed.life is KeyLife.RETIRED:
            return resumed
        return await self._finish_retirement(await asyncio.to_thread(self._silence))

    def _join(self, make: Callable[[], NewKey]) -> KeyRecord:
        """Do step 1 of a rotation."""
        directory = self._directory
        with directory.locked(timeout_s=LOCK_TIMEOUT_S):
            new = make()
            source = KeySource.AGENT if new.seed is None else KeySource.FILE
            record = KeyRecord(public=new.key.public_key, life=KeyLife.JOINING, source=source)
            directory.keys.ring.joined(record)  # raises before anything is written
            successor = NoteSigner(name=self._origin, key=new.key)
            statement = state_rotation(directory.signer(self._origin), successor)
            # The ring must exist before a later key does: a later key without a ring means that the ring was lost.
            directory.replace_ring(directory.keys.ring)
            destroy_strays(directory.path, directory.keys.ring)
            if new.seed is not None:
                write_later_key(directory.path, new.seed, record.public)
            joining = replace(record, rotation=statement.note)
            directory.replace_ring(directory.keys.ring.joined(joining))
            return joining

    async def _finish_rotation(self, joining: KeyRecord) -> KeyRecord:
        """Do steps 2 and 3 of a rotation."""
        previous = VerifierKey.ed25519(name=self._origin, public=self._directory.keys.ring.active.public)
        successor = VerifierKey.ed25519(name=self._origin, public=joining.public)
        event = SignerRotated(vkey=successor.format(), previous=previous.format(), note=joining.rotation or "")
        rotated_at = await self._record(event, successor)
        return await asyncio.to_thread(self._activate, joining.public, rotated_at)

    def _activate(self, public: bytes, rotated_at: int) -> KeyRecord:
        directory = self._directory
        with directory.locked(timeout_s=LOCK_TIMEOUT_S):
            joining = directory.keys.ring.find(KeyLife.JOINING)
            if joining is not None and joining.public == public:  # otherwise another process has done it
                directory.replace_ring(directory.keys.ring.activated(rotated_at=rotated_at))
            return directory.keys.ring.active

    def _silence(self) -> KeyRecord:
        """Do steps 1 and 2 of a retirement."""
        directory = self._directory
        with directory.locked(timeout_s=LOCK_TIMEOUT_S):
            ring = directory.keys.ring
            old = ring.find(KeyLife.OVERLAPPING)
            if old is None:
                raise RotationError("there is no key to retire: lakeproof ledger keys rotate makes a new one first")
            retired = VerifierKey.ed25519(name=self._origin, public=old.public)
            active, last = directory.signers(self._origin)
            trees = [
                SignedTree(origin=origin, size=noted.checkpoint.size, root=noted.checkpoint.root.hex())
                for origin, noted in directory.read_notes().items()
            ]
            try:
                pages = state_retirement([active, last], retired=retired, successor=active.verifier_key, trees=trees)
                self._check_covered(trees)
            except KeyUnavailableError:
                # The old key is lost. Nothing is signed without it, so no checkpoint will ever cover the rotation.
                pages = state_retirement([active], retired=retired, successor=active.verifier_key, trees=trees)
            write_retirement(directory.path, old.public, pages)
            directory.replace_ring(ring.silenced())
            return old

    def _check_covered(self, trees: Sequence[SignedTree]) -> None:
        """Check that a checkpoint that both keys have signed covers the rotation, so that it is known outside."""
        rotated_at = self._directory.keys.ring.active.rotated_at or 0
        signed = next((tree.size for tree in trees if tree.origin == self._origin), 0)
        if signed <= rotated_at:
            raise RotationError(
                f"nothing that was signed covers the rotation yet (entry {rotated_at} of {self._origin}, signed are "
                f"{signed}): let lakeproof up sign, then retire the key"
            )

    async def _finish_retirement(self, retiring: KeyRecord) -> KeyRecord:
        """Do steps 3 and 4 of a retirement."""
        pages, retirement = await asyncio.to_thread(read_retirement, self._directory.path, retiring.public)
        for page in pages:
            await self._record(page, retirement.retired)
        return await asyncio.to_thread(self._destroy, retiring.public)

    def _destroy(self, public: bytes) -> KeyRecord:
        directory = self._directory
        with directory.locked(timeout_s=LOCK_TIMEOUT_S):
            ring = directory.keys.ring
            retiring = ring.find(KeyLife.RETIRING)
            if retiring is not None and retiring.public == public:  # otherwise another process has done it
                destroy_key(directory.path, ring, retiring)
                directory.replace_ring(ring.retired())
            return next(record for record in directory.keys.ring.records if record.public == public)

    async def _record(self, event: SignerCreated | SignerRotated | SignerRetired, key: VerifierKey) -> int:
        """Append the event of a key to the system log; return the index of its entry."""
        group = operation_group(event, format_key("signer", (key.key_id.hex(),)), occurred_at=self._clock())
        outcome = await self._append(group)
        if not isinstance(outcome, Appended):
            raise RotationError(f"the system log did not take {event.TYPE}: do it again")
        return outcome.indices.start


def add_ml_dsa_key(directory: KeyDirectory, *, random: Callable[[int], bytes] = os.urandom) -> MlDsaRecord:
    """
    Make an ML-DSA-44 key that signs together with all others, and return it; `random(n)` returns n random bytes.

    Raises:
        RotationError: if two sign already, or it was used before.
        KeyUnavailableError: if the active Ed25519 key does not sign now.
        KeyDirectoryError: if the directory is damaged, or in use for long.
        OSError: if it cannot be written; nothing has changed then, but for a file that the next change destroys.
    """
    with directory.locked(timeout_s=LOCK_TIMEOUT_S):
        seed = random(SEED_SIZE_BYTES)
        public = MlDsaKey.from_seed(seed).public
        added = directory.keys.ring.with_ml_dsa(public)  # raises before anything is written
        # The ring must exist before such a key does: the key without a ring means that the ring was lost.
        directory.replace_ring(directory.keys.ring)
        destroy_strays(directory.path, directory.keys.ring)
        write_ml_dsa_key(directory.path, seed, public)
        directory.replace_ring(added)
        return added.ml_dsa[-1]


def retire_ml_dsa_key(directory: KeyDirectory) -> MlDsaRecord:
    """
    Let the older of two ML-DSA-44 keys, or the only one, sign no more; destroy its private half and return it.

    If a retirement was interrupted before the private half was destroyed, it is resumed, and nothing else is done.

    Raises:
        RotationError: if none signs.
        KeyUnavailableError: if the active Ed25519 key does not sign now.
        KeyDirectoryError: if the directory is damaged, or in use for long.
        OSError: if it cannot be written, or the private half not destroyed; it can be done again.
    """
    with directory.locked(timeout_s=LOCK_TIMEOUT_S):
        ring = directory.keys.ring
        stopped = [
            record
            for record in ring.ml_dsa
            if record.life is KeyLife.RETIRED and holds_ml_dsa_key(directory.path, record.public)
        ]
        destroy_strays(directory.path, ring)
        if stopped:  # a resumed retirement: it must not end the key that signs now
            return stopped[-1]
        ring, retired = ring.without_ml_dsa()
        directory.replace_ring(ring)
        destroy_strays(directory.path, ring)
        return retired


def operation_group(event: EventData, key: str, *, occurred_at: datetime) -> Group:
    """
    Return a group of one event by the installation itself; its id is derived from type, key and data.
    """
    content: Json = {"data": to_data(event), "key": key}
    prepared = prepare_event(event, key=key, actor=SYSTEM_ACTOR, occurred_at=occurred_at)
    return Group(id=derived_group_id(event.TYPE, content), then=(prepared,))
