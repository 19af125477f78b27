# SPDX-License-Identifier: Apache-2.0
"""
The commands that hand out what others verify: `export` a log, `prove` one entry, show a log's `key`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.anchor_settings import load_policy
from lakeproof.commands.exits import Done, failure, progress
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import AsJson, LogKeys, LogName, OutFile, parsed_keys
from lakeproof.log_names import find_named_log
from ledger.anchoring.published import signing_key
from ledger.errors import LedgerError
from ledger.files.directory import STAMP_FILE
from ledger.format.key_history import Trusted
from ledger.format.note import VerifierKey
from ledger.format.verification import ProgressCallback
from ledger.proving.export import Exported, as_reader, export_log, export_parts, export_stamped_log
from ledger.proving.prove import prove_entry
from ledger.store.read import Log
from ledger.store.session import Connection

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.installation import Installation


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `export`, `prove` and `key`; each calls `open_installation`.
    """

    @app.command()
    def export(
        log: LogName,
        directory: Annotated[Path, typer.Argument(help="Empty, or an earlier export.", show_default=False)],
        *,
        key: LogKeys = None,
        parts: Annotated[bool, typer.Option("--parts", help="Disclose the payload parts, too.")] = False,
        stamped: Annotated[bool, typer.Option("--stamped", help="Up to the newest time stamp, with it.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Write a log, up to its newest checkpoint, as a directory that can be verified without us."""
        if parts and stamped:
            raise typer.BadParameter(
                "only the system log is stamped, and its parts are not given out: name one of both"
            )
        run = export_log_and_parts if parts else export_only_stamped_log if stamped else export_only_log
        with failure(), progress("entries exported") as show_progress:
            exporting = partial(run, name=log, directory=directory, keys=parsed_keys(key), progress=show_progress)
            exported = run_with_auditor(open_installation, exporting)
        exported.show(as_json=as_json)

    @app.command()
    def prove(
        log: LogName,
        index: Annotated[int, typer.Argument(help="The entry's index, from 0.", min=0, show_default=False)],
        *,
        out: OutFile,
        key: LogKeys = None,
        as_json: AsJson = False,
    ) -> None:
        """Write the proof of one entry, the entry included, as one file for `check-proof`."""
        with failure():
            proving = partial(write_proof, name=log, index=index, out=out, keys=parsed_keys(key))
            run_with_auditor(open_installation, proving).show(as_json=as_json)

    @app.command("key")
    def show_key(
        log: LogName,
        *,
        ml_dsa: Annotated[bool, typer.Option("--ml-dsa", help="Its ML-DSA-44 keys instead.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Show the verifier key of a log, to be handed to those who verify it."""
        with failure():
            finding = partial(find_ml_dsa_keys if ml_dsa else find_key, name=log)
            run_with_auditor(open_installation, finding).show(as_json=as_json)


async def export_only_log(
    installation: Installation,
    auditor: Connection,
    name: str,
    directory: Path,
    *,
    keys: list[VerifierKey],
    progress: ProgressCallback,
) -> Done:
    """
    Export a log and say what to do with the export.

    Without `keys`, what this installation's have signed is exported.

    Raises:
        LedgerError: if there is no such log, nothing of it is signed, or the directory cannot take it.
    """
    log = await find_named_log(installation, auditor, name)
    return _how_to_verify(await _export(installation, auditor, log, directory, keys, progress), directory)


async def export_only_stamped_log(
    installation: Installation,
    auditor: Connection,
    name: str,
    directory: Path,
    *,
    keys: list[VerifierKey],
    progress: ProgressCallback,
) -> Done:
    """
    Export a log up to its newest time-stamped checkpoint, with the stamp, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log was never stamped.
    """
    log, policy = await find_named_log(installation, auditor, name), load_policy(installation.settings)
    exported = await export_stamped_log(
        auditor, log, directory, keys=_trusted(installation, keys), policy=policy, progress=progress
    )
    done, stamp = _how_to_verify(exported, directory), directory / STAMP_FILE
    return Done(f"{done.text} --stamp {stamp} --tsa-root <PEM>", {**done.members, "stamp": str(stamp)})


async def export_log_and_parts(
    installation: Installation,
    auditor: Connection,
    name: str,
    directory: Path,
    *,
    keys: list[VerifierKey],
    progress: ProgressCallback,
) -> Done:
    """
    Export a log with the payload parts that still exist, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log belongs to no tenant, or its parts cannot be opened.
    """
    from lakeproof.sealing import open_checked_opener  # only what discloses payload parts needs it

    log = await find_named_log(installation, auditor, name)
    if log.reader is None:
        raise LedgerError(f"log {log.origin} belongs to no tenant, its payload parts are not given out: omit --parts")
    # With other keys all parts would be taken for erased, and removed there.
    opener = await open_checked_opener(installation)
    exported = await _export(installation, auditor, log, directory, keys, progress)
    async with as_reader(auditor, log):
        disclosed = await export_parts(auditor, log, directory, opener=opener, progress=progress)
    done = _how_to_verify(exported, directory)
    said = f"{done.text}\ndisclosed: payload parts of {disclosed:,} entries"
    return Done(said, {**done.members, "disclosed_entries": disclosed})


async def write_proof(
    installation: Installation, auditor: Connection, name: str, index: int, out: Path, *, keys: list[VerifierKey]
) -> Done:
    """
    Write the proof of one entry to the file `out`, and say what to do with it.

    Raises:
        LedgerError: if there is no such log or entry, it is not signed yet, or the file cannot be written.
    """
    log, trusted = await find_named_log(installation, auditor, name), _trusted(installation, keys)
    proven = await prove_entry(auditor, log, index, keys=trusted, policy=load_policy(installation.settings))
    key = signing_key(proven.note, proven.checkpoint, keys=trusted)
    _write(out, proven.format())
    return Done(
        f"proof of entry {index} of {log.origin} in {out}\nlakeproof ledger check-proof {out} --key {key.format()}",
        {"log": log.origin, "index": index, "file": str(out), "verifier_key": key.format()},
    )


async def find_key(installation: Installation, auditor: Connection, name: str) -> Done:
    """
    Return a log's verifier key.

    Raises:
        LedgerError: if there is no such log, or no key.
    """
    origin = (await find_named_log(installation, auditor, name)).origin
    return _shown_keys(origin, [installation.verifier_key(origin).format()])


async def find_ml_dsa_keys(installation: Installation, auditor: Connection, name: str) -> Done:
    """
    Return a log's ML-DSA-44 verifier keys, the newest first.

    Raises:
        LedgerError: if there is no such log, or no such key.
    """
    origin = (await find_named_log(installation, auditor, name)).origin
    keys = installation.open_keys().ml_dsa_verifier_keys(origin)
    if not keys:
        raise LedgerError("no ML-DSA-44 key signs the logs: lakeproof ledger keys add-ml-dsa makes one")
    return _shown_keys(origin, [key.format() for key in keys])


def _shown_keys(origin: str, keys: list[str]) -> Done:
    """Return keys as they are shown: one a line."""
    return Done("\n".join(keys), {"log": origin, "verifier_keys": keys})


def _trusted(installation: Installation, keys: list[VerifierKey]) -> Trusted:
    """Return the keys that checkpoints are read with: this installation's, old ones too, if no other is named."""
    return keys or installation.open_keys().keys.history


async def _export(
    installation: Installation,
    auditor: Connection,
    log: Log,
    directory: Path,
    keys: list[VerifierKey],
    progress: ProgressCallback,
) -> Exported:
    trusted, policy = _trusted(installation, keys), load_policy(installation.settings)
    return await export_log(auditor, log, directory, keys=trusted, policy=policy, progress=progress)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error.strerror}") from error


def _how_to_verify(exported: Exported, directory: Path) -> Done:
    checkpoint, key = exported.checkpoint, exported.key.format()
    return Done(
        f"{checkpoint.size:,} entries of {checkpoint.origin} in {directory}\n"
        f"lakeproof ledger verify {directory} --key {key}",
        {
            "log": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "directory": str(directory),
            "verifier_key": key,
        },
    )
