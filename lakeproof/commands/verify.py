# SPDX-License-Identifier: Apache-2.0
"""
The commands that verify: `verify` a log, `check-proof` of one entry.

`verify <directory>` and `check-proof` need only files and keys, and import neither the database driver nor the gateway.
A log is never verified with the key that is stored next to it: whoever changed the log could have put it there. Without
a key from elsewhere nothing is verified, and the result is "could not tell".
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from lakeproof.commands.evidence import show_evidence
from lakeproof.commands.exits import progress, verdict
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import (
    NOT_PINNED,
    AsJson,
    PolicyFile,
    StampRoots,
    TrustedKeys,
    parsed_keys,
    pinned_keys,
    read_note,
)
from lakeproof.commands.reports import NOT_WITNESSED, show_report, show_verdicts
from lakeproof.commands.verify_options import VerifyOptions, pinned_anchors, read_tile_leaves
from lakeproof.console import one_line, show_json
from ledger.anchoring.archive import ARCHIVE_FORMS, ArchivedNotes, BucketAccess, claimed_origin, unread_notes
from ledger.anchoring.archives import is_archive, parse_archive, read_archives
from ledger.errors import BrokenError, LedgerError
from ledger.files.directory import LogDirectory
from ledger.format.checkpoint import parse_checkpoint
from ledger.format.continuation import system_origin_of
from ledger.format.key_history import Trusted
from ledger.format.note import VerifierKey, parse_note
from ledger.format.proof import check_proof
from ledger.format.verification import LogVerdict, VerificationReport, read_proven
from ledger.verify.anchored import SystemExport, judge_directory, verify_system_export, with_ml_dsa
from ledger.verify.directory import verify_directory
from ledger.verify.resuming import NoProgressFile, ProgressFile
from ledger.verify.workers import Effort

PROCESSES_MAX: Final = 256

KeptCheckpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE|PLACE",
        help="One that is kept outside: the log must extend it. A file, or a place where the system log's are "
        f"published: {ARCHIVE_FORMS}. May be repeated.",
        show_default=False,
    ),
]
SinceCheckpoint = Annotated[
    Path | None,
    typer.Option(
        "--since", metavar="FILE", help="A checkpoint you verified up to: read only what is new.", show_default=False
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="FILE", help="Save progress in it, and resume from it.", show_default=False),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", min=1, max=PROCESSES_MAX, help="For a large log; default: one per core.", show_default=False
    ),
]
AnchoredIn = Annotated[
    Path | None,
    typer.Option(
        "--anchored-in", metavar="DIRECTORY", help="An export of the system log, verified too.", show_default=False
    ),
]
StampFile = Annotated[
    Path | None,
    typer.Option("--stamp", metavar="FILE", help="A time stamp over the checkpoint.", show_default=False),
]
SecondOpinion = Annotated[
    bool, typer.Option("--second-opinion", help="Let pymerkle compute roots and inclusion proofs too.")
]
Deep = Annotated[bool, typer.Option("--deep", help="Also compare what the installation derives from the log.")]


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `verify` and `check-proof`; `open_installation` is called for a log in the database, and not before.
    """

    @app.command()
    def verify(
        path: Annotated[
            Path | None, typer.Argument(help="An exported log, or a bundle of evidence.", show_default=False)
        ] = None,
        *,
        log: Annotated[
            str | None, typer.Option("--log", help="Instead: one log in the database.", show_default=False)
        ] = None,
        key: TrustedKeys = None,
        checkpoint: KeptCheckpoints = None,
        since: SinceCheckpoint = None,
        resume: Resume = None,
        processes: Processes = None,
        anchored_in: AnchoredIn = None,
        policy: PolicyFile = None,
        tsa_root: StampRoots = None,
        stamp: StampFile = None,
        second_opinion: SecondOpinion = False,
        deep: Deep = False,
        as_json: AsJson = False,
    ) -> None:
        """
        Verify chain, tree and checkpoints of a log, or a bundle; without a name, of every log of this installation.

        Exit code 0: verified, 1: broken, 2: unknown.
        """
        with verdict(as_json=as_json):
            options = VerifyOptions(
                keys=parsed_keys(key),
                kept=[
                    ArchivedNotes(where=one, notes=(read_note(Path(one)),))
                    for one in checkpoint or []
                    if not is_archive(one)
                ],
                places=[parse_archive(one, BucketAccess()) for one in checkpoint or [] if is_archive(one)],
                since=read_note(since) if since else None,
                pinned=pinned_anchors(policy, tsa_root),
                keeper=ProgressFile(resume) if resume else NoProgressFile(),
                effort=Effort(processes=processes or len(os.sched_getaffinity(0))),
            )
            if second_opinion:
                from ledger.verify import second_opinion as other  # an extra: it may not be there

                options = replace(options, opinion=other.second_opinion)
            for_logs_only = (log, deep, second_opinion, checkpoint, since, resume, processes, anchored_in, stamp)
            if path is not None and path.is_file() and not any(for_logs_only):
                show_evidence(path, pinned_keys(key), options.pinned, as_json=as_json)
                return
            if path is not None and log is None and not deep:
                report = _verify_offline(path, options, anchored_in, read_note(stamp) if stamp else None)
                show_report(report, as_json=as_json)
            elif path is None and log is not None and anchored_in is None and stamp is None:
                show_report(_verify_in_database(open_installation, log, options, deep=deep), as_json=as_json)
            elif path is None and not any((anchored_in, stamp, since, resume)):
                show_verdicts(_verify_every(open_installation, options, deep=deep), as_json=as_json)
            else:
                raise LedgerError(
                    "name either the directory of an exported log, perhaps with --anchored-in and --stamp, or the file "
                    "of a bundle, or --log and a log in the database, perhaps with --deep, --since or --resume, or "
                    "none, for every log in the database, perhaps with --deep"
                )

    @app.command("check-proof")
    def check(
        file: Annotated[Path, typer.Argument(help="A proof file, as `prove` writes it.", show_default=False)],
        *,
        key: TrustedKeys = None,
        as_json: AsJson = False,
    ) -> None:
        """Check the proof of one entry and show the entry. Exit code 0: proven, 1: broken, 2: could not tell."""
        with verdict(as_json=as_json):
            _check_proof(file, pinned_keys(key), as_json=as_json)


def _verify_in_database(
    open_installation: OpenInstallation, log: str, options: VerifyOptions, *, deep: bool
) -> VerificationReport:
    from lakeproof.commands.verify_database import verify_log, verify_log_deeply

    with progress("entries verified") as show_progress:
        verifying = partial(
            verify_log_deeply if deep else verify_log, name=log, options=options, progress=show_progress
        )
        return run_with_auditor(open_installation, verifying)


def _verify_every(open_installation: OpenInstallation, options: VerifyOptions, *, deep: bool) -> Sequence[LogVerdict]:
    from lakeproof.commands.verify_database import verify_every_log, verify_every_log_deeply

    with progress("entries verified") as show_progress:
        verifying = partial(
            verify_every_log_deeply if deep else verify_every_log, options=options, progress=show_progress
        )
        return run_with_auditor(open_installation, verifying)


def _verify_offline(
    directory: Path, options: VerifyOptions, system: Path | None, token: bytes | None
) -> VerificationReport:
    if not options.keys:
        raise LedgerError(NOT_PINNED)
    kept, own, of_system = _kept_outside(directory, options)
    if of_system and system is None:
        raise LedgerError(
            f"{of_system[0][0]} holds a checkpoint of the system log: name an export of that one with --anchored-in"
        )
    trusted: Trusted = options.keys
    system_export: SystemExport | None = None
    if system is not None:
        with progress("entries of the system log verified") as show_progress:
            held = [note for _, note in of_system]
            system_export = verify_system_export(
                system, options.keys, held=held, effort=options.effort, progress=show_progress
            )
        trusted = system_export.trusted
    with progress("entries verified") as show_progress:
        report = verify_directory(
            directory,
            trusted,
            held=[note for _, note in own],
            since=options.since,
            keeper=options.keeper,
            effort=options.effort,
            progress=show_progress,
        )
    if options.opinion is not None:
        said = options.opinion(read_tile_leaves(directory, report.size), {report.size: report.root})
        report = replace(report, checked=(*report.checked, said))
    for path in (directory, system):
        if path is not None:
            report = with_ml_dsa(report, LogDirectory(path).read_checkpoint(), options.keys)
    report = replace(
        report,
        checked=(*report.checked, *(f"{len(one.notes):,} checkpoints kept in {one.where}" for one in kept)),
        unchecked=(*report.unchecked, *unread_notes(kept)),
    )
    return judge_directory(
        directory,
        report,
        trusted=trusted,
        pinned=options.pinned,
        system=system_export,
        token=token,
        kept=[(where, parse_checkpoint(parse_note(note)[0])) for where, note in (*own, *of_system)],
    )


def _kept_outside(
    directory: Path, options: VerifyOptions
) -> tuple[Sequence[ArchivedNotes], Sequence[tuple[str, bytes]], Sequence[tuple[str, bytes]]]:
    """Return what is kept outside, and of that (place, note) for the log in a directory and for its system log."""
    if not options.kept and not options.places:
        return (), (), ()
    try:
        origin = claimed_origin(LogDirectory(directory).read_checkpoint())
    except BrokenError:  # there is none: for the verification to say
        return (), (), ()
    system = system_origin_of(origin)
    kept = [*options.kept, *read_archives(options.places, system)]
    notes = [(one.where, note) for one in kept for note in one.notes]
    of_system = [one for one in notes if claimed_origin(one[1]) == system != origin]
    return kept, [one for one in notes if one not in of_system], of_system


def _check_proof(file: Path, keys: list[VerifierKey], *, as_json: bool) -> None:
    proven = check_proof(read_note(file), keys)
    read_proven(proven)
    entry = json.loads(proven.entry)
    checkpoint = proven.checkpoint
    if as_json:
        show_json(
            {
                "status": "verified",
                "origin": checkpoint.origin,
                "index": proven.index,
                "size": checkpoint.size,
                "root": checkpoint.root.hex(),
                "witnessed": False,
                "entry": entry,
            }
        )
        return
    show_json(entry)
    typer.echo(f"entry {proven.index:,} of log {one_line(checkpoint.origin)}")
    typer.echo(f"stands in its tree of {checkpoint.size:,} entries with the signed root {checkpoint.root.hex()}")
    typer.echo(NOT_WITNESSED)
    typer.echo("OK")
