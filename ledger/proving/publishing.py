"""
What of a tenant's log is published, resource by resource, as C2SP tlog-tiles names them: checkpoint, tiles, bundles.

Guarantee: nothing that the newest signed checkpoint does not cover is given out, so whoever follows a log from outside
sees it grow from one signed tree to the next. Tiles and bundles never change; an incomplete one is a prefix, computed
when it is asked for, of what it becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.files.directory import CHECKPOINT_FILE, is_bundle
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.note import parse_note
from ledger.format.tiles import TILE_WIDTH, format_bundle, parse_bundle_path, parse_tile_path, tile_width
from ledger.store.read import QUERIES, Connection, Log, read_entries, read_tile

OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"


class NotPublishedError(LedgerError):
    """A log has no such resource, or none yet: the newest signed checkpoint does not cover it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """The content of one resource. `is_final` if it stays the same for ever; `is_entries` if it is a bundle."""

    content: bytes
    content_type: str
    is_final: bool
    is_entries: bool = False


async def read_resource(connection: Connection, log: Log, path: str) -> Resource:
    """
    Return what is published of a log at `path`, relative to it: `checkpoint`, `tile/0/x001/067`, `tile/entries/000`.

    Of the system log nothing is: it is for those who run the installation and their auditors, who are given an export.

    `connection` reads as any role that sees the log. What is stored is given out as it is: those who ask verify it.

    Raises:
        NotPublishedError: if there is no such resource, or not yet.
        BrokenError: if what must be there is missing from the database.
    """
    if log.tenant is None:
        raise NotPublishedError(f"log {log.origin} belongs to no tenant: it is not published, but exported")
    note, checkpoint = await _newest(connection, log)
    if path == CHECKPOINT_FILE:
        return Resource(content=note, content_type=TEXT, is_final=False)
    try:
        level, index, width = (0, *parse_bundle_path(path)) if is_bundle(path) else parse_tile_path(path)
    except FormatError as error:
        raise NotPublishedError(f"{path!r:.100}: expected 'checkpoint' or the path of a tile, found neither") from error
    if tile_width(level=level, index=index, size=checkpoint.size) < width:
        raise NotPublishedError(f"{path}: expected a place in a signed tree of {checkpoint.size} entries")
    if not is_bundle(path):
        tile = await read_tile(connection, log.log_id, level=level, index=index, width=width)
        return Resource(content=tile.pack(), content_type=OCTETS, is_final=True)
    first = index * TILE_WIDTH
    entries = await read_entries(connection, log.log_id, from_index=first, to_index=first + width)
    if len(entries) != width:
        missing = first + len(entries)
        raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {missing}", found="none", index=missing)
    return Resource(content=format_bundle(entries), content_type=OCTETS, is_final=True, is_entries=True)


async def _newest(connection: Connection, log: Log) -> tuple[bytes, Checkpoint]:
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log.log_id})).fetchone()
    if row is None:
        raise NotPublishedError(f"log {log.origin} has no signed checkpoint yet: try again in a moment")
    note = bytes(row[1])
    try:
        text, _ = parse_note(note)
        return note, parse_checkpoint(text)
    except FormatError as error:
        where = f"ledger.checkpoints size {row[0]}"
        raise BrokenError(Fault.CHECKPOINT, where=where, expected="a signed checkpoint", found=error) from error
