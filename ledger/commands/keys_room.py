"""
What `keys show`, `keys rotate` and `keys retire` do in the room of an installation, and what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ledger.commands.room import OpenRoom
from ledger.signing.desk import KeyDesk
from ledger.signing.key_ring import KeyRecord, KeySource
from ledger.signing.keys import parse_key_id
from ledger.signing.rotation import NewKey, brought_file_key, new_file_key


async def list_keys(open_room: OpenRoom) -> list[dict[str, str]]:
    """
    Return the keys of the installation, oldest first: id, state, what holds it, verifier key of the system log.

    Raises:
        LedgerError: if there is no key yet, or it cannot be used.
    """
    async with open_room() as room, room.key_desk() as desk:
        return [
            {
                "id": record.key_id,
                "state": record.life.value,
                "held_by": record.source.value,
                "verifier_key": desk.verifier_key(record).format(),
            }
            for record in desk.directory.keys.ring.records
        ]


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
