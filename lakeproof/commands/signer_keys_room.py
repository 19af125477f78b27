"""
What the commands `keys …` do in the room of an installation, and what they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from lakeproof.commands.room import OpenRoom
from ledger.format.cosignature import ml_dsa_verifier_key
from ledger.signing import rotation
from ledger.signing.key_ring import KeyRecord, KeySource, MlDsaRecord
from ledger.signing.keys import parse_key_id
from ledger.signing.rotation import KeyDesk, NewKey, brought_file_key, new_file_key


async def list_keys(open_room: OpenRoom) -> dict[str, list[dict[str, str]]]:
    """
    Return the keys of the installation, oldest first: id, state, what holds it, verifier key of the system log.

    Those of Ed25519 are the `keys`, the others `ml_dsa_44`.

    Raises:
        LedgerError: if there is no key yet, or it cannot be used.
    """
    async with open_room() as room, room.key_desk() as desk:
        ring = desk.directory.keys.ring
        return {
            "keys": [_listed(record, record.source, desk.verifier_key(record).format()) for record in ring.records],
            "ml_dsa_44": [
                _listed(record, KeySource.FILE, ml_dsa_verifier_key(desk.origin, record.public).format())
                for record in ring.ml_dsa
            ],
        }


async def rotate_to_new_key(open_room: OpenRoom) -> str:
    """
    Rotate to a key that is made now, and say what to do next.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.KeyKeeper.rotate`.
    """
    return await _rotate(open_room, lambda _: new_file_key())


async def rotate_to_file_key(open_room: OpenRoom, file: Path) -> str:
    """
    Rotate to the key in a file; raises as `rotate_to_new_key`.
    """
    return await _rotate(open_room, lambda _: brought_file_key(file))


async def rotate_to_agent_key(open_room: OpenRoom, key_id: str) -> str:
    """
    Rotate to a key of the agent; raises as `rotate_to_new_key`.
    """
    wanted = parse_key_id(key_id)
    return await _rotate(open_room, lambda desk: desk.agent_key(wanted))


async def retire_key(open_room: OpenRoom) -> str:
    """
    Retire the overlapping key, and say what is left to do.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.KeyKeeper.retire`.
    """
    async with open_room() as room, room.key_desk() as desk:
        retired = await desk.retire()
        active = desk.directory.keys.ring.active
    left = (
        "its private half is destroyed; destroy it in backups of the key directory, too"
        if retired.source is KeySource.FILE
        else "remove it from the agent, too (ssh-add -d)"
    )
    return f"{retired.key_id} is retired: {left}\n{active.key_id} signs alone"


async def add_ml_dsa_key(open_room: OpenRoom) -> str:
    """
    Make an ML-DSA-44 key that signs every checkpoint from now on, and say what to do next.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.add_ml_dsa_key`.
    """
    async with open_room() as room, room.key_desk() as desk:
        added = await asyncio.to_thread(rotation.add_ml_dsa_key, desk.directory)
        key = ml_dsa_verifier_key(desk.origin, added.public).format()
    return (
        f"{added.key_id} signs every new checkpoint beside Ed25519\n"
        f"{key}\n"
        "Back up the key directory now. Hand the new verifier keys to those who verify (lakeproof ledger key <log> "
        "--ml-dsa)"
    )


async def retire_ml_dsa_key(open_room: OpenRoom) -> str:
    """
    Retire the older of two ML-DSA-44 keys, or the only one, and say what is left to do.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.retire_ml_dsa_key`.
    """
    async with open_room() as room, room.key_desk() as desk:
        retired = await asyncio.to_thread(rotation.retire_ml_dsa_key, desk.directory)
        signing = desk.directory.keys.ring.ml_dsa_signing
    left = f"{signing[0].key_id} signs on" if signing else "Ed25519 signs alone"
    return (
        f"{retired.key_id} is retired: its private half is destroyed; destroy it in backups of the key directory, too\n"
        f"{left}"
    )


def _listed(record: KeyRecord | MlDsaRecord, source: KeySource, verifier_key: str) -> dict[str, str]:
    return {
        "id": record.key_id,
        "state": record.life.value,
        "held_by": source.value,
        "verifier_key": verifier_key,
    }


async def _rotate(open_room: OpenRoom, make: Callable[[KeyDesk], NewKey]) -> str:
    async with open_room() as room, room.key_desk() as desk:
        joined: KeyRecord = await desk.rotate(lambda: make(desk))
        key = desk.verifier_key(joined).format()
    return (
        f"{joined.key_id} signs beside the key before it\n"
        f"{key}\n"
        "Back up the key directory now. Hand the new verifier keys to those who verify (lakeproof ledger key <log>); "
        "when they have them: lakeproof ledger keys retire"
    )
