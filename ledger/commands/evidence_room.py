"""
What `bundle` does in the room of an installation: evidence from the database.
"""

from __future__ import annotations

from pathlib import Path

from ledger.commands.evidence import write_bundle
from ledger.commands.room import LogRoom, OpenRoom
from ledger.errors import LedgerError
from ledger.evidence.from_database import open_source
from ledger.evidence.gather import NO_PARTS, PartNames, Wanted, gather
from ledger.note import VerifierKey
from ledger.read import Log


async def gather_from_log(
    open_room: OpenRoom, name: str, wanted: Wanted, out: Path, *, parts: PartNames, keys: list[VerifierKey]
) -> str:
    """
    Write the evidence of what is wanted to the file `out`, and return how to check it.

    Without `keys`, those of this installation are used, for the log and for the system log that anchors it.

    Raises:
        LedgerError: if there is no such log, nothing of it is signed, or no such evidence in it.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        if parts != NO_PARTS and log.reader is None:
            raise LedgerError(f"log {log.origin} belongs to no tenant, its payload parts are not given out: name none")
        system = await room.find_log("system")
        trusted = keys or _keys(room, log, system)
        wanted_anchor = system if any(key.name == system.origin for key in trusted) else None
        source = await open_source(
            room.connection, log, wanted_anchor, keys=trusted, policy=room.witness_policy(), opener=room.opener
        )
        data = await gather(source, wanted, keys=trusted, parts=parts)
    return write_bundle(out, data, trusted)


def _keys(room: LogRoom, log: Log, system: Log) -> list[VerifierKey]:
    return [room.verifier_key(origin) for origin in dict.fromkeys((log.origin, system.origin))]
