# SPDX-License-Identifier: Apache-2.0
"""
What is published of a log: its newest checkpoint that others have seen, with their lines, and its newest time stamp.

Guarantee: under a witness policy, a checkpoint of the system log is published only if the policy's quorum has cosigned
it. This fails closed: while witnesses are unreachable, the published checkpoint stays where it was, and never falls
back to one that only the log has signed. Without a policy, and for a tenant's log, whose anchors are in the system log,
the newest signed checkpoint is published.

Cosignatures and stamps are rows that the signer role inserts. Both are verified before they are stored, and
cosignatures again whenever they are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from psycopg.types.numeric import Int4, Int8

from ledger.anchoring.anchor_log import QUERIES
from ledger.anchoring.anchors import stamped_note
from ledger.anchoring.timestamp import Stamp
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint
from ledger.format.encoding import SIZE_MAX
from ledger.format.key_history import KeyHistory, Trusted, every_key
from ledger.format.note import Signature, VerifierKey, format_note, open_note, parse_note
from ledger.format.signature import cosigned_at
from ledger.format.verification import read_checkpoint
from ledger.format.witness_policy import UnwitnessedError, WitnessPolicy
from ledger.store.read import QUERIES as LOG_QUERIES
from ledger.store.read import Log
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError

CHECKPOINTS_SEARCHED_MAX: Final = 100_000
"""How many are searched for a quorum, newest first: a day of one per second. Beyond that nothing is published."""


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it is stored, with the stored lines of witnesses; nothing of it is verified."""

    size: int
    note: bytes
    lines: tuple[tuple[str, bytes, bytes], ...]
    """Name, key id and signature."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({name for name, _, _ in self.lines}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """A checkpoint's note as it was stamped, with the token; `gen_time` is the token's, not verified here."""

    size: int
    note: bytes
    token: bytes
    gen_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """
    A checkpoint that may be published: its note with all cosignatures, opened.

    `stamped` is the newest stamped checkpoint that is not larger; stamps are requested less often than cosignatures.
    """

    note: bytes
    checkpoint: Checkpoint
    cosigned_by: tuple[str, ...]
    stamped: Stamped | None

    @property
    def token(self) -> bytes | None:
        """The time stamp over this very checkpoint, if it was stamped."""
        return self.stamped.token if self.stamped and self.stamped.size == self.checkpoint.size else None


async def read_published_checkpoint(
    connection: Connection, log: Log, *, keys: Trusted, policy: WitnessPolicy | None
) -> Published | None:
    """
    Return what may be published of `log`, or None if nothing may yet; `connection` reads as the auditor.

    `keys` are all that have ever signed the log: the published checkpoint may be from before a rotation.

    Raises:
        BrokenError: if what is stored is not signed by one of `keys`, or a cosignature of the policy's is bad.
    """
    newest = await read_newest(connection, log)
    cosigned = await _open_to_publish(connection, log, newest, keys=keys, policy=policy)
    if cosigned is None:
        return None
    stamped = await read_newest_stamp(connection, log.log_id, to_size=cosigned.checkpoint.size)
    return Published(
        note=cosigned.note, checkpoint=cosigned.checkpoint, cosigned_by=cosigned.cosigned_by, stamped=stamped
    )


async def read_to_publish(
    connection: Connection, log: Log, *, keys: Trusted, policy: WitnessPolicy | None
) -> tuple[bytes, Checkpoint]:
    """
    Return the note that may be published of `log`, with its cosignatures, and the checkpoint in it.

    `connection` and `keys` as for `read_published_checkpoint`.

    Raises:
        NoCheckpointError: if there is none yet; with a policy, because too few witnesses have cosigned any.
        BrokenError: as `read_published_checkpoint`.
    """
    newest = await read_newest(connection, log)
    return await open_to_publish(connection, log, newest, keys=keys, policy=policy)


async def read_newest(connection: Connection, log: Log, *, to_size: int = SIZE_MAX) -> StoredCheckpoint | None:
    """
    Return the newest signed checkpoint up to a size with its stored cosignatures, or None; nothing is verified.
    """
    parameters = {"log_id": Int4(log.log_id), "to_size": Int8(to_size)}
    query = QUERIES["cosigned_checkpoint" if log.tenant is None else "checkpoint_alone"]
    row = await (await connection.execute(query, parameters, binary=True)).fetchone()
    if row is None:
        return None
    size, note, lines = row
    return StoredCheckpoint(size=size, note=bytes(note), lines=tuple(lines or ()))


async def open_to_publish(
    connection: Connection, log: Log, newest: StoredCheckpoint | None, *, keys: Trusted, policy: WitnessPolicy | None
) -> tuple[bytes, Checkpoint]:
    """
    Return what `read_to_publish` returns, from `newest`, which was read before; never of a larger size.

    Raises:
        NoCheckpointError, BrokenError: as `read_to_publish`.
    """
    cosigned = await _open_to_publish(connection, log, newest, keys=keys, policy=policy)
    if cosigned is None:
        missing = "" if policy is None or log.tenant is not None else " that enough witnesses have cosigned"
        raise NoCheckpointError(
            f"log {log.origin} has no signed checkpoint yet{missing}: `lakeproof up` sees to it soon after an append"
        )
    return cosigned.note, cosigned.checkpoint


def signing_key(note: bytes, checkpoint: Checkpoint, *, keys: Trusted) -> VerifierKey:
    """
    Return the key that a note is to be verified with, whose `checkpoint` was opened with `keys`: one that signed it.

    If several have, as during a rotation, it is the first of `keys`; in a history, the newest.

    Raises:
        BrokenError: (`Fault.SIGNATURE`) if none of `keys` has signed it under the log's name.
    """
    origin = checkpoint.origin
    candidates = keys.keys_for(origin, checkpoint.size) if isinstance(keys, KeyHistory) else keys
    signed = open_note(note, candidates).verified
    for key in candidates:
        if key in signed and key.name == origin:
            return key
    found = ", ".join(key.name for key in signed)
    raise BrokenError(Fault.SIGNATURE, where="checkpoint", expected=f"a signature by a key named {origin}", found=found)


async def read_newest_signed(connection: Connection, log: Log, *, keys: Trusted) -> tuple[Checkpoint, bytes] | None:
    """
    Return the newest checkpoint that was signed, and its note as the signer wrote it, or None.

    Raises:
        BrokenError: if it is not a checkpoint of this log that one of `keys` has signed.
    """
    row = await (await connection.execute(LOG_QUERIES["latest_checkpoint"], {"log_id": log.log_id})).fetchone()
    if row is None:
        return None
    note = bytes(row[1])
    return read_checkpoint(note, keys, where="ledger.checkpoints", origin=log.origin), note


async def store_cosignatures(
    connection: Connection, log_id: int, *, size: int, note: bytes, policy: WitnessPolicy
) -> tuple[str, ...]:
    """
    Store the cosignatures of the policy's witnesses on `note`, a checkpoint of that size; return the witnesses' names.

    `connection` works as the signer. Other lines are not stored: nobody has verified them, or they name no time.

    Raises:
        BrokenError: (`Fault.SIGNATURE`) if a cosignature of one of the witnesses does not verify.
        FormatError: if `note` is no signed note.
    """
    names = tuple(policy.cosignatures(note))  # verified here
    known = {(witness.key.name, witness.key.key_id) for witness in policy.witnesses}
    lines = [line for line in parse_note(note)[1] if (line.name, line.key_id) in known]
    lines = [line for line in lines if cosigned_at(line.signature) > 0]
    if lines:
        columns = {
            "log_id": log_id,
            "size": size,
            "names": [line.name for line in lines],
            "key_ids": [line.key_id for line in lines],
            "signatures": [line.signature for line in lines],
        }
        await connection.execute(QUERIES["insert_cosignatures"], columns)
    return names


async def store_stamp(connection: Connection, log_id: int, *, size: int, token: bytes, stamp: Stamp) -> None:
    """
    Store a token over the checkpoint of that size; `stamp` is what `check_stamp` has returned for it.

    `connection` works as the signer.
    """
    row = {"log_id": log_id, "size": size, "gen_time": stamp.gen_time, "token": token}
    await connection.execute(QUERIES["insert_stamp"], row)


async def read_newest_stamp(connection: Connection, log_id: int, *, to_size: int = SIZE_MAX) -> Stamped | None:
    """
    Return the newest stamped checkpoint of a log that is not larger than `to_size`, or None.
    """
    parameters = {"log_id": log_id, "to_size": to_size}
    row = await (await connection.execute(QUERIES["newest_stamp"], parameters)).fetchone()
    if row is None:
        return None
    size, note, token, gen_time = row
    return Stamped(size=size, note=stamped_note(bytes(note)), token=bytes(token), gen_time=gen_time)


async def read_cosigned_note(connection: Connection, log: Log, *, size: int, note: bytes) -> bytes:
    """
    Return `note`, signed at that size, with the stored cosignatures, whether they are enough or not.

    Raises:
        BrokenError: (`Fault.CHECKPOINT`) if what is stored is no note with lines.
    """
    found = await read_newest(connection, log, to_size=size)
    if found is None or found.size != size:
        return note
    return _joined(log, found, note)


async def _newest_with_quorum(connection: Connection, log: Log, policy: WitnessPolicy, *, to_size: int) -> int | None:
    """Return the size of the newest checkpoint that names enough witnesses; nothing is verified."""
    known = {(witness.key.name, witness.key.key_id): witness.name for witness in policy.witnesses}
    parameters = {"log_id": log.log_id, "to_size": to_size, "limit": CHECKPOINTS_SEARCHED_MAX}
    cursor = await connection.execute(QUERIES["cosigners_newest_first"], parameters, binary=True)
    for size, names, key_ids in await cursor.fetchall():
        lines = zip(names, map(bytes, key_ids), strict=True)
        if policy.is_met_by({known[line] for line in lines if line in known}):
            return int(size)
    return None


async def _open_to_publish(
    connection: Connection, log: Log, found: StoredCheckpoint | None, *, keys: Trusted, policy: WitnessPolicy | None
) -> _Cosigned | None:
    if found is None:
        return None
    newest = read_checkpoint(found.note, keys, where="ledger.checkpoints", origin=log.origin)
    # A policy with the quorum `none` asks for no witness.
    if policy is None or log.tenant is not None or policy.is_met_by(frozenset()):
        return _Cosigned(note=_joined(log, found, found.note), checkpoint=newest, cosigned_by=found.names)
    size = await _newest_with_quorum(connection, log, policy, to_size=newest.size)
    if size is None:
        return None
    found = await read_newest(connection, log, to_size=size)
    note = b"" if found is None or found.size != size else _joined(log, found, found.note)
    checkpoint = read_checkpoint(note, keys, where="ledger.checkpoints", origin=log.origin)
    try:
        policy.check(note, logs=every_key(keys, log.origin))
    except UnwitnessedError as error:  # the rows name witnesses, but the lines are not theirs
        where = f"ledger.cosignatures of size {size}"
        raise BrokenError(Fault.SIGNATURE, where=where, expected="the quorum's cosignatures", found=error) from error
    return _Cosigned(note=note, checkpoint=checkpoint, cosigned_by=found.names if found else ())


class _Cosigned(NamedTuple):
    """A checkpoint that may be published, and who has cosigned it."""

    note: bytes
    checkpoint: Checkpoint
    cosigned_by: tuple[str, ...]


def _joined(log: Log, found: StoredCheckpoint, note: bytes) -> bytes:
    """Return a note with the stored cosignatures as lines after its own."""
    try:
        text, own = parse_note(note)
        added = [Signature(name=name, key_id=bytes(key), signature=bytes(said)) for name, key, said in found.lines]
        return format_note(text, (*own, *added))
    except FormatError as error:
        where = f"checkpoint of {log.origin} at size {found.size}"
        raise BrokenError(Fault.CHECKPOINT, where=where, expected="a note and its lines", found=error) from error
