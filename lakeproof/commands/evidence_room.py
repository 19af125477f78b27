"""
What `bundle` does in the room of an installation: evidence from the database.
"""

from __future__ import annotations

from pathlib import Path

from lakeproof.commands.evidence_text import write_bundle
from lakeproof.commands.room import LogRoom, OpenRoom
from ledger.anchoring.published import signing_key
from ledger.errors import LedgerError
from ledger.format.note import VerifierKey
from ledger.format.verification import read_checkpoint
from ledger.proving.evidence.bundle import Bundle, parse_bundle
from ledger.proving.evidence.from_database import open_source
from ledger.proving.evidence.gather import NO_PARTS, PartNames, Wanted, gather


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
        trusted = keys or [
            key for origin in dict.fromkeys((log.origin, system.origin)) for key in room.verifier_keys(origin)
        ]
        wanted_anchor = system if any(key.name == system.origin for key in trusted) else None
        opener = room.opener if parts == NO_PARTS else await room.checked_opener()
        source = await open_source(
            room.connection, log, wanted_anchor, keys=trusted, policy=room.witness_policy(), opener=opener
        )
        data = await gather(source, wanted, keys=trusted, parts=parts)
        signed = keys or _signing_keys(room, parse_bundle(data))
    return write_bundle(out, data, signed)


def _signing_keys(room: LogRoom, bundle: Bundle) -> list[VerifierKey]:
    """Return the keys that have signed the bundle's checkpoints, and might: a retired one nothing beyond its end."""
    history = room.key_history()
    notes = [bundle.section.checkpoint, *([bundle.anchor.checkpoint] if bundle.anchor else [])]
    opened = [(note, read_checkpoint(note, history, where="evidence")) for note in notes]
    return [signing_key(note, checkpoint, keys=history) for note, checkpoint in opened]
