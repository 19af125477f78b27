"""
The commands that hand out what others verify: `export` a log, `prove` one entry, show a log's `key`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.commands.exits import failure, progress
from lakeproof.commands.options import LogKeys, LogName, parsed_keys
from ledger.anchoring.published import signing_key
from ledger.errors import LedgerError
from ledger.files.directory import STAMP_FILE
from ledger.format.key_history import Trusted
from ledger.format.note import VerifierKey
from ledger.format.verification import ProgressCallback
from ledger.proving.export import Exported, as_reader, export_log, export_parts, export_stamped_log
from ledger.proving.prove import prove_entry
from ledger.store.read import Log

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.room import LogRoom, OpenRoom


def add_commands(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `export`, `prove` and `key`; each calls `open_room`.
    """

    @app.command()
    def export(
        log: LogName,
        directory: Annotated[Path, typer.Argument(help="Empty, or an earlier export.", show_default=False)],
        *,
        key: LogKeys = None,
        parts: Annotated[bool, typer.Option("--parts", help="Disclose the payload parts, too.")] = False,
        stamped: Annotated[bool, typer.Option("--stamped", help="Up to the newest time stamp, with it.")] = False,
    ) -> None:
        """Write a log, up to its newest checkpoint, as a directory that can be verified without us."""
        if parts and stamped:
            raise typer.BadParameter(
                "only the system log is stamped, and its parts are not given out: name one of both"
            )
        run = export_log_and_parts if parts else export_only_stamped_log if stamped else export_only_log
        with failure(), progress("entries exported") as told:
            typer.echo(asyncio.run(run(open_room, log, directory, keys=parsed_keys(key), progress=told)))

    @app.command()
    def prove(
        log: LogName,
        index: Annotated[int, typer.Argument(help="The entry's index, from 0.", min=0, show_default=False)],
        *,
        out: Annotated[Path, typer.Option("--out", help="The file to write.", show_default=False)],
        key: LogKeys = None,
    ) -> None:
        """Write the proof of one entry, the entry included, as one file for `check-proof`."""
        with failure():
            typer.echo(asyncio.run(write_proof(open_room, log, index, out, keys=parsed_keys(key))))

    @app.command("key")
    def show_key(
        log: LogName, *, ml_dsa: Annotated[bool, typer.Option("--ml-dsa", help="Its ML-DSA-44 keys instead.")] = False
    ) -> None:
        """Show the verifier key of a log, to be handed to those who verify it."""
        with failure():
            typer.echo(asyncio.run((find_ml_dsa_keys if ml_dsa else find_key)(open_room, log)))


async def export_only_log(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], progress: ProgressCallback
) -> str:
    """
    Export a log and say what to do with the export.

    Without `keys`, what this installation's have signed is exported.

    Raises:
        LedgerError: if there is no such log, nothing of it is signed, or the directory cannot take it.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        return _told(await _export(room, log, directory, keys, progress), directory)


async def export_only_stamped_log(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], progress: ProgressCallback
) -> str:
    """
    Export a log up to its newest time-stamped checkpoint, with the stamp, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log was never stamped.
    """
    async with open_room() as room:
        log, policy = await room.find_log(name), room.witness_policy()
        exported = await export_stamped_log(
            room.connection, log, directory, keys=_trusted(room, keys), policy=policy, progress=progress
        )
        return f"{_told(exported, directory)} --stamp {directory / STAMP_FILE} --tsa-root <PEM>"


async def export_log_and_parts(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], progress: ProgressCallback
) -> str:
    """
    Export a log with the payload parts that still exist, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log belongs to no tenant, or its parts cannot be opened.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        if log.reader is None:
            raise LedgerError(
                f"log {log.origin} belongs to no tenant, its payload parts are not given out: omit --parts"
            )
        opener = await room.checked_opener()  # with others all parts would be taken for erased, and removed there
        exported = await _export(room, log, directory, keys, progress)
        async with as_reader(room.connection, log):
            disclosed = await export_parts(room.connection, log, directory, opener=opener, progress=progress)
        return f"{_told(exported, directory)}\ndisclosed: payload parts of {disclosed:,} entries"


async def write_proof(open_room: OpenRoom, name: str, index: int, out: Path, *, keys: list[VerifierKey]) -> str:
    """
    Write the proof of one entry to the file `out`, and say what to do with it.

    Raises:
        LedgerError: if there is no such log or entry, it is not signed yet, or the file cannot be written.
    """
    async with open_room() as room:
        log, trusted = await room.find_log(name), _trusted(room, keys)
        proven = await prove_entry(room.connection, log, index, keys=trusted, policy=room.witness_policy())
    key = signing_key(proven.note, proven.checkpoint, keys=trusted)
    _write(out, proven.format())
    return f"proof of entry {index} of {log.origin} in {out}\nlakeproof ledger check-proof {out} --key {key.format()}"


async def find_key(open_room: OpenRoom, name: str) -> str:
    """
    Return the text of a log's verifier key.

    Raises:
        LedgerError: if there is no such log, or no key.
    """
    async with open_room() as room:
        return room.verifier_key((await room.find_log(name)).origin).format()


async def find_ml_dsa_keys(open_room: OpenRoom, name: str) -> str:
    """
    Return the text of a log's ML-DSA-44 verifier keys, one a line, the newest first.

    Raises:
        LedgerError: if there is no such log, or no such key.
    """
    async with open_room() as room:
        keys = room.ml_dsa_verifier_keys((await room.find_log(name)).origin)
    if not keys:
        raise LedgerError("no ML-DSA-44 key signs the logs: lakeproof ledger keys add-ml-dsa makes one")
    return "\n".join(key.format() for key in keys)


def _trusted(room: LogRoom, keys: list[VerifierKey]) -> Trusted:
    """Return the keys that checkpoints are read with: this installation's, old ones too, if no other is named."""
    return keys or room.key_history()


async def _export(
    room: LogRoom, log: Log, directory: Path, keys: list[VerifierKey], progress: ProgressCallback
) -> Exported:
    trusted, policy = _trusted(room, keys), room.witness_policy()
    return await export_log(room.connection, log, directory, keys=trusted, policy=policy, progress=progress)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error.strerror}") from error


def _told(exported: Exported, directory: Path) -> str:
    return (
        f"{exported.checkpoint.size:,} entries of {exported.checkpoint.origin} in {directory}\n"
        f"lakeproof ledger verify {directory} --key {exported.key.format()}"
    )
