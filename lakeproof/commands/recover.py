"""
The commands for logs that the signer refuses: `adopt` what is stored, `recover` what is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from psycopg import AsyncConnection

from lakeproof.commands.exits import failure, progress
from lakeproof.commands.options import LogName, TrustedKeys, parsed_keys
from ledger.erasing.rerun import Rerun
from ledger.errors import LedgerError, NoSuchLogError
from ledger.format.note import VerifierKey
from ledger.format.verification import ProgressCallback
from ledger.recovering.recover import Adoptable, adopt, read_adoptable, recover_log
from ledger.recovering.successor import RecoveryDesk, continue_log, tenant_of
from ledger.signing.signer import CheckpointSigner, SignerState
from ledger.store.read import Log

if TYPE_CHECKING:
    from lakeproof.commands.room import LogRoom, OpenRoom


def add_commands(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `adopt` and `recover`; each calls `open_room`.
    """

    @app.command()
    def adopt(
        log: LogName,
        *,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask: it was looked at before.")] = False,
    ) -> None:
        """Let the signer go on from stored checkpoints of which its key directory knows nothing."""

        def agree(shown: str) -> bool:
            typer.echo(shown)
            return yes or typer.confirm("Let the signer go on from this?", err=True)

        with failure(), progress("entries verified") as told:
            typer.echo(asyncio.run(adopt_log(open_room, log, agree, progress=told)))

    @app.command()
    def recover(
        log: LogName,
        *,
        directory: Annotated[
            Path | None,
            typer.Option("--from", metavar="DIRECTORY", help="An export that has what is lost.", show_default=False),
        ] = None,
        new_origin: Annotated[
            bool, typer.Option("--new-origin", help="No export has it: close this log for ever, begin another.")
        ] = False,
        identity: Annotated[
            str | None,
            typer.Option("--identity", help="With --new-origin: whom its first API key is for.", show_default=False),
        ] = None,
        key: TrustedKeys = None,
    ) -> None:
        """Bring back what the database has lost of a log, or go on from it under another origin."""
        if (directory is None) != new_origin or new_origin != (identity is not None):
            raise typer.BadParameter("expected --from DIRECTORY, perhaps with --key, or --new-origin with --identity")
        if key and directory is None:
            raise typer.BadParameter("--key is whom you trust to have signed the export: it goes with --from")
        with failure(), progress("entries") as told:
            if directory is not None:
                typer.echo(
                    asyncio.run(recover_from_export(open_room, log, directory, keys=parsed_keys(key), progress=told))
                )
            elif identity is not None:
                typer.echo(asyncio.run(recover_under_new_origin(open_room, log, identity)))


NOT_PINNED: Final = (
    "KEY NOT PINNED: the export was verified with the keys of this installation; name one that you hold with --key\n"
)


async def adopt_log(open_room: OpenRoom, name: str, agree: Callable[[str], bool], *, progress: ProgressCallback) -> str:
    """
    Show what is stored of a log, and make its newest checkpoint the signer's last note if `agree` says so.

    Raises:
        LedgerError: if there is nothing to adopt, the log is broken, or it was not agreed to.
    """
    async with open_room() as room, room.recovery_desk() as desk:
        log = await room.find_log(name)
        adoptable = await read_adoptable(desk.auditor, log, desk.keys, progress=progress)
        if not agree(_shown(log.origin, adoptable)):
            raise LedgerError("nothing was adopted")
        adopt(desk.keys, adoptable)
        await desk.signer.sign_once()
        return f"adopted: the signer goes on from {adoptable.checkpoint.size:,} entries of {log.origin}"


async def recover_from_export(
    open_room: OpenRoom, name: str, directory: Path, *, keys: Sequence[VerifierKey] = (), progress: ProgressCallback
) -> str:
    """
    Replay what the database has lost of a log from an exported directory, signed by one of `keys`, if there are some.

    Raises:
        LedgerError: if the export cannot be used; what was replayed stays and is gone on with.
    """
    async with open_room() as room, room.recovery_desk() as desk:
        log = await _find_or_make(room, desk, name)
        async with await AsyncConnection.connect(desk.appender_dsn, autocommit=True) as appender:
            recovered = await recover_log(
                desk.auditor,
                appender,
                log,
                directory,
                keys=desk.keys,
                replay=desk.replay,
                pinned=keys,
                progress=progress,
            )
        again = await desk.rerun()
        await desk.signer.sign_once()
        return (
            f"{recovered.to_index - recovered.from_index:,} entries replayed, {recovered.from_index:,} to "
            f"{recovered.to_index - 1:,} of {log.origin}, with {recovered.parts:,} payload parts\n"
            f"{_erased(again, log)}\n"
            f"{_standing(desk.signer, log.origin)}\n"
            f"{'' if keys else NOT_PINNED}"
            "not in a log, and so not brought back: names behind actors, and the secrets of API keys made since (make "
            "those anew)"
        )


async def recover_under_new_origin(open_room: OpenRoom, name: str, identity: str) -> str:
    """
    Close a log that cannot be recovered and begin another; make it a tenant's of the same name.

    Raises:
        LedgerError: if nothing of the log is lost, or the new one cannot be made.
    """
    async with open_room() as room, room.recovery_desk() as desk:
        log = await room.find_log(name)
        successor, continuation = await continue_log(
            desk.auditor, log, keys=desk.keys, make_log=desk.make_log, append=desk.append, now=desk.clock()
        )
        await desk.signer.sign_once()
        key = await desk.found(log, successor, identity)
        return (
            f"{log.origin} is closed: signed were {continuation.signed.size:,} entries, "
            f"{continuation.size:,} are in the database\n"
            f"{successor.origin} goes on from it, as its first entry says\n"
            f"first API key, shown once: {key}\n"
            "policies, access rules, catalogs and tables are not carried over: make them again in the new log"
        )


async def _find_or_make(room: LogRoom, desk: RecoveryDesk, name: str) -> Log:
    """Return the log of that name; one that was signed here and is younger than the backup is made again, empty."""
    try:
        return await room.find_log(name)
    except NoSuchLogError:
        tenant = tenant_of(name)
        if tenant is None or name not in desk.keys.read_notes():
            raise
        return await desk.make_log(name, tenant)


def _shown(origin: str, adoptable: Adoptable) -> str:
    stored, noted = adoptable.checkpoint, adoptable.noted
    known = f"size {noted.checkpoint.size:,}, root {noted.checkpoint.root.hex()}" if noted else "none"
    return (
        f"log                {origin}\n"
        f"in the database    size {adoptable.size:,}, root {adoptable.root.hex()}, verified\n"
        f"newest checkpoint  size {stored.size:,}, root {stored.root.hex()}\n"
        f"signer's last note {known}\n"
        "The key directory is older than this database. If the database was restored, too, more may have been signed "
        "than either knows: ask a witness or an auditor for the newest checkpoint they have seen."
    )


def _erased(again: Rerun, log: Log) -> str:
    failed = again.failed.get(log.log_id)
    if failed is not None:
        return f"what the log says is erased is not all erased again, and so the log is not confirmed: {failed}"
    return f"{again.erasures:,} erasures carried out again, with {again.parts:,} payload parts"


def _standing(signer: CheckpointSigner, origin: str) -> str:
    if signer.state is not SignerState.SIGNING:
        return "the signer that is at work confirms it in its next round"
    refusal = signer.refused.get(origin)
    return "the signer has confirmed it" if refusal is None else str(refusal)
