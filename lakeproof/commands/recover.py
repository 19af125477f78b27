# SPDX-License-Identifier: Apache-2.0
"""
The commands for logs that the signer refuses: `adopt` what is stored, `recover` what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeproof.commands.exits import Done, failure, progress
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import AsJson, LogName, TrustedKeys, parsed_keys
from lakeproof.console import explain, say
from lakeproof.log_names import find_named_log
from ledger.erasing.rerun import Rerun
from ledger.errors import LedgerError, NoSuchLogError
from ledger.format.note import VerifierKey
from ledger.format.verification import ProgressCallback
from ledger.recovering.recover import Adoptable, adopt, read_adoptable, recover_log
from ledger.recovering.successor import continue_log, tenant_of
from ledger.signing.signer import CheckpointSigner, SignerState
from ledger.store.read import Log
from ledger.store.session import Connection

if TYPE_CHECKING:
    from lakeproof.installation import Installation


NOT_PINNED: Final = (
    "KEY NOT PINNED: the export was verified with the keys of this installation; name one that you hold with --key\n"
)


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `adopt` and `recover`; each calls `open_installation`.
    """

    @app.command()
    def adopt(
        log: LogName,
        *,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask: it was looked at before.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Let the signer continue from stored checkpoints that its key directory does not know."""

        def agree(shown: str) -> bool:
            (explain if as_json else say)(shown)
            return yes or typer.confirm("Let the signer continue from this?", err=True)

        with failure(), progress("entries verified") as show_progress:
            adopting = partial(adopt_log, name=log, agree=agree, progress=show_progress)
            adopted = run_with_auditor(open_installation, adopting)
        adopted.show(as_json=as_json)

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
        as_json: AsJson = False,
    ) -> None:
        """Bring back what the database has lost of a log, or continue it under another origin."""
        if (directory is None) != new_origin or new_origin != (identity is not None):
            raise typer.BadParameter("expected --from DIRECTORY, perhaps with --key, or --new-origin with --identity")
        if key and directory is None:
            raise typer.BadParameter("--key is whom you trust to have signed the export: it goes with --from")
        with failure(), progress("entries") as show_progress:
            if directory is not None:
                recovering = partial(
                    recover_from_export, name=log, directory=directory, keys=parsed_keys(key), progress=show_progress
                )
                run_with_auditor(open_installation, recovering).show(as_json=as_json)
            elif identity is not None:
                continuing = partial(recover_under_new_origin, name=log, identity=identity)
                run_with_auditor(open_installation, continuing).show(as_json=as_json)


async def adopt_log(
    installation: Installation,
    auditor: Connection,
    name: str,
    agree: Callable[[str], bool],
    *,
    progress: ProgressCallback,
) -> Done:
    """
    Show what is stored of a log, and make its newest checkpoint the signer's last note if `agree` says so.

    Raises:
        LedgerError: if there is nothing to adopt, the log is broken, or it was not agreed to.
    """
    from lakeproof.sealing import open_checked_opener  # the whole system: here and below only what recovers needs it
    from lakeproof.signing import make_signer

    keys, _ = installation.open_keys(), await open_checked_opener(installation)
    log = await find_named_log(installation, auditor, name)
    adoptable = await read_adoptable(auditor, log, keys, progress=progress)
    if not agree(_shown(log.origin, adoptable)):
        raise LedgerError("nothing was adopted")
    adopt(keys, adoptable)
    await make_signer(installation, keys).sign_once()
    adopted = adoptable.checkpoint
    return Done(
        f"adopted: the signer continues from {adopted.size:,} entries of {log.origin}",
        {"log": log.origin, "size": adopted.size, "root": adopted.root.hex()},
    )


async def recover_from_export(
    installation: Installation,
    auditor: Connection,
    name: str,
    directory: Path,
    *,
    keys: Sequence[VerifierKey] = (),
    progress: ProgressCallback,
) -> Done:
    """
    Replay what the database has lost of a log from an exported directory, signed by one of `keys`, if there are some.

    Raises:
        LedgerError: if the export cannot be used; what was replayed stays, and the same command continues from there.
    """
    from lakeproof.recovering import erase_again, make_signed_log, open_replay
    from lakeproof.sealing import open_checked_keys, sealer
    from lakeproof.signing import make_signer

    held = installation.open_keys()
    signer = make_signer(installation, held)
    async with installation.connect(installation.roles.eraser) as eraser:
        subject_keys = await open_checked_keys(installation, eraser)
    try:
        log = await find_named_log(installation, auditor, name)
    except NoSuchLogError:
        # One that was signed here and is younger than the backup is made again, empty.
        tenant = tenant_of(name)
        if tenant is None or name not in held.read_notes():
            raise
        log = await make_signed_log(installation, auditor, signer, name, tenant)
    replay = open_replay(sealer(installation, subject_keys).seal)
    async with installation.connect(installation.roles.appender) as appender:
        recovered = await recover_log(
            auditor, appender, log, directory, keys=held, replay=replay, pinned=keys, progress=progress
        )
    again = await erase_again(installation, subject_keys)
    await signer.sign_once()
    failed, standing = again.failed.get(log.log_id), _standing(signer, log.origin)
    said = (
        f"{recovered.to_index - recovered.from_index:,} entries replayed, {recovered.from_index:,} to "
        f"{recovered.to_index - 1:,} of {log.origin}, with {recovered.parts:,} payload parts\n"
        f"{_erased(again, log)}\n"
        f"{standing}\n"
        f"{'' if keys else NOT_PINNED}"
        "not in a log, and so not brought back: names behind actors, and the secrets of API keys made since (make "
        "those anew)"
    )
    return Done(
        said,
        {
            "log": log.origin,
            "from_index": recovered.from_index,
            "to_index": recovered.to_index,
            "parts": recovered.parts,
            "erasures": again.erasures,
            "erasures_failed": None if failed is None else str(failed),
            "signer": standing,
            "key_pinned": bool(keys),
        },
    )


async def recover_under_new_origin(installation: Installation, auditor: Connection, name: str, identity: str) -> Done:
    """
    Close a log that cannot be recovered and begin another; make it a tenant's of the same name.

    Raises:
        LedgerError: if nothing of the log is lost, or the new one cannot be made.
    """
    from lakeproof.recovering import append_once, found_successor, make_signed_log
    from lakeproof.sealing import open_checked_opener
    from lakeproof.signing import make_signer

    keys, _ = installation.open_keys(), await open_checked_opener(installation)
    signer = make_signer(installation, keys)
    log = await find_named_log(installation, auditor, name)
    successor, continuation = await continue_log(
        auditor,
        log,
        keys=keys,
        make_log=partial(make_signed_log, installation, auditor, signer),
        append=partial(append_once, installation),
        now=datetime.now(UTC),
    )
    await signer.sign_once()
    key = await found_successor(installation, log, successor, identity)
    said = (
        f"{log.origin} is closed: signed were {continuation.signed.size:,} entries, "
        f"{continuation.size:,} are in the database\n"
        f"{successor.origin} continues it, as its first entry says\n"
        f"first API key, shown once: {key}\n"
        "policies, access rules, catalogs and tables are not carried over: make them again in the new log"
    )
    return Done(
        said,
        {
            "closed": log.origin,
            "signed_size": continuation.signed.size,
            "size": continuation.size,
            "log": successor.origin,
            "key": key,
        },
    )


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
