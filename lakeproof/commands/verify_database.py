# SPDX-License-Identifier: Apache-2.0
"""
`verify` of a log in the database, which needs an installation.

Whose signatures it trusts: without a pinned key, the history of keys in the signer's own directory, which is outside
the database. With one, the keys that the system log records, beginning with the pinned one; then the system log is
always verified, too.

Which log is the system log, and whose a log is, follows from its origin, never from a column of the database. Both logs
are compared with the notes that the signer keeps outside the database: nobody who controls the database alone can set
one back. They are also compared with the checkpoints in archives: nobody who controls the installation alone can set
those back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lakeproof.anchor_settings import load_places, load_policy
from lakeproof.commands.verify_options import VerifyOptions
from lakeproof.log_names import find_named_log
from ledger.anchoring import (
    Anchor,
    Pinned,
    anchors_of,
    check_all_present,
    check_anchors,
    furthest,
    judge_archived,
    judge_witnessing,
)
from ledger.anchoring.archive import ArchivedNotes, ArchiveError, claimed_origin, unread_notes
from ledger.anchoring.archives import read_archives
from ledger.anchoring.published import Published, read_published_checkpoint
from ledger.errors import BrokenError, Fault, FormatError, NoSuchLogError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.continuation import system_origin_of
from ledger.format.key_history import KeyHistory, Trusted, every_key, follow_recorded_keys, is_key_event, open_signed
from ledger.format.note import parse_note
from ledger.format.verification import LogVerdict, ProgressCallback, VerificationReport
from ledger.proving.export import as_reader
from ledger.recovering.successor import tenant_of
from ledger.store.read import Log, find_log, iterate_entries, read_leaves, read_logs
from ledger.store.session import Connection
from ledger.store.stored_tree import read_frontier
from ledger.verify.anchored import with_ml_dsa, with_witnessing
from ledger.verify.database import verify_database
from ledger.verify.database_pages import QUERIES, read_sound_head
from ledger.verify.indexes import check_indexes
from ledger.verify.parts import verify_parts

if TYPE_CHECKING:
    from lakeproof.installation import Installation

LOGS: Final = "ledger.logs"
_PAGE: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of `verify`: the installation, a connection as its auditor, and the options."""

    installation: Installation
    auditor: Connection
    options: VerifyOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class _References:
    """
    What logs are compared with, read before any log: a log that grows meanwhile still extends it.

    `notes` are those that the signer keeps outside the database, by origin; `kept` are from outside the installation.
    `system_size` is the size of the system log: an anchor behind it may be of a log that was read before it grew.
    """

    system: Log
    system_size: int
    notes: Mapping[str, bytes]
    kept: Sequence[ArchivedNotes]
    unread: tuple[str, ...]

    def held(self, origin: str) -> list[bytes]:
        """Return the notes of a log: the signer's, and those from outside the installation."""
        own = [self.notes[origin]] if origin in self.notes else []
        return [*own, *(note for kept in self.kept for note in kept.notes if claimed_origin(note) == origin)]

    def kept_of(self, *origins: str) -> list[tuple[str, Checkpoint]]:
        """Return (place, checkpoint) for each note of these logs from outside; signatures were checked with the log."""
        return [
            (kept.where, parse_checkpoint(parse_note(note)[0]))
            for kept in self.kept
            for note in kept.notes
            if claimed_origin(note) in origins
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SystemView:
    """The verified system log: the keys it was verified with, its anchors by origin, and its published checkpoint."""

    report: VerificationReport
    trusted: Trusted
    anchors: Mapping[str, Sequence[Anchor]]
    published: Published | None
    pinned: Pinned


async def verify_log(
    installation: Installation, auditor: Connection, name: str, options: VerifyOptions, *, progress: ProgressCallback
) -> VerificationReport:
    """
    Verify a log in the database and its payload parts; without pinned keys, with those of this installation.

    Unless only its newest entries are verified, the system log is verified, too, and the log is compared with its
    anchors there.

    Raises:
        BrokenError: at the first fault.
        LedgerError: if there is no such log, or no key, or if a named place cannot be read.
    """
    log = await find_named_log(installation, auditor, name)
    return await _verify_alone(_Run(installation, auditor, options), log, progress)


async def verify_log_deeply(
    installation: Installation, auditor: Connection, name: str, options: VerifyOptions, *, progress: ProgressCallback
) -> VerificationReport:
    """
    Verify a log as `verify_log` does, and check that what the installation derives from it agrees with the log.

    Raises:
        BrokenError: at the first fault; a fault in derived data (`Fault.DERIVED`) names the table and the key.
        LedgerError: as `verify_log`.
    """
    log = await find_named_log(installation, auditor, name)
    report = await _verify_alone(_Run(installation, auditor, options), log, progress)
    return replace(report, checked=(*report.checked, *await check_log_deeply(installation, auditor, log)))


async def verify_every_log(
    installation: Installation, auditor: Connection, options: VerifyOptions, *, progress: ProgressCallback
) -> Sequence[LogVerdict]:
    """
    Verify every log of the installation as `verify_log` does, the system log first, and check that none is missing.

    Each log has its own verdict, whatever is wrong with the others; so has each log that is known but missing.

    Raises:
        BrokenError: if the logs cannot be listed.
        LedgerError: as `verify_log`.
    """
    return await _verify_every(_Run(installation, auditor, options), progress, _nothing_deeper)


async def verify_every_log_deeply(
    installation: Installation, auditor: Connection, options: VerifyOptions, *, progress: ProgressCallback
) -> Sequence[LogVerdict]:
    """
    Verify every log as `verify_every_log` does, and check what the installation derives from each.

    Raises:
        BrokenError, LedgerError: as `verify_every_log`.
    """
    deeply = partial(check_log_deeply, installation, auditor)
    return await _verify_every(_Run(installation, auditor, options), progress, deeply)


async def check_log_deeply(installation: Installation, auditor: Connection, log: Log) -> Sequence[str]:
    """
    Check that what the installation derives from a verified log agrees with it; return what was checked.

    Raises:
        BrokenError: (`Fault.DERIVED`) if something does not agree; names the table and the key.
    """
    from gateway.metadata.files import MetadataFiles  # gateway and projections: nothing else here needs them
    from lakeproof.deep_verification.checks import check_deeply
    from lakeproof.services import storage_properties
    from ledger.signing.signer import read_arrivals

    return await check_deeply(
        auditor,
        log,
        installation=installation,
        files=MetadataFiles(storage_properties(installation.settings)),
        opener=installation.opener,
        arrived=read_arrivals(installation.keys),
    )


async def _nothing_deeper(_log: Log) -> Sequence[str]:
    return ()


async def _verify_alone(run: _Run, log: Log, progress: ProgressCallback) -> VerificationReport:
    references = await _read_references(run, await _system_log_of(run.auditor, log))
    foreign = [note for kept in references.kept for note in kept.notes]
    foreign = [note for note in foreign if claimed_origin(note) not in {log.origin, references.system.origin}]
    # `foreign` are notes of other logs: verification refuses them.
    report = await _verify(run, log, references, progress, also_held=foreign)
    if report.since is not None:
        if run.options.keys:  # the keys for the new entries are from the system log, so all of it must be sound
            await _verify_system(run, references)
        return replace(report, unchecked=(*report.unchecked, "anchors in the system log"))
    if log == references.system:
        view = await _view_of_all(run, log, report)
        report = replace(report, checked=(*report.checked, await _all_present(run.auditor, view)))
    else:
        verified, trusted = await _verify_system(run, references)
        view = await _view_of(run, verified, trusted, size=references.system_size)
    return _with_kept(await _with_anchors(run.auditor, log, report, view, references), references)


async def _verify_every(
    run: _Run, progress: ProgressCallback, check_deeply: Callable[[Log], Awaitable[Sequence[str]]]
) -> Sequence[LogVerdict]:
    system = await _system_of(run)
    logs = sorted(await read_logs(run.auditor), key=lambda log: (log != system, log.origin))
    references = await _read_references(run, system)
    view: _SystemView | None = None
    verdicts = []
    for log in logs:
        try:
            await _system_log_of(run.auditor, log)
            report = await _verify(run, log, references, progress)
            if log == system:
                view = await _view_of_all(run, log, report)
                report = _with_kept(report, references)
            if view is None:
                lost = "anchors in the system log, which is broken itself"
                report = replace(report, unchecked=(*report.unchecked, lost))
            else:
                report = await _with_anchors(run.auditor, log, report, view, references)
            report = replace(report, checked=(*report.checked, *await check_deeply(log)))
            verdicts.append(LogVerdict(origin=log.origin, result=report))
        except BrokenError as error:
            verdicts.append(LogVerdict(origin=log.origin, result=error))
    there = {log.origin for log in logs}
    return [*verdicts, *await _missing(run, references, view, there=there)]


async def _system_of(run: _Run) -> Log:
    try:
        return await find_named_log(run.installation, run.auditor, "system")
    except NoSuchLogError as error:
        raise BrokenError(Fault.ANCHOR, where=LOGS, expected="the system log", found="no such log") from error


async def _missing(
    run: _Run, references: _References, view: _SystemView | None, *, there: Collection[str]
) -> Sequence[LogVerdict]:
    """Return a verdict for each log that notes or anchors name and that is not in the database."""
    errors: dict[str, BrokenError] = {}
    trusted = await _trusted(run, references.system) if view is None else view.trusted
    outside = [("note that the signer keeps", note) for note in references.notes.values()]
    outside += [(f"checkpoint in {kept.where}", note) for kept in references.kept for note in kept.notes]
    for where, note in outside:
        origin = claimed_origin(note)
        if origin in there or origin in errors:
            continue
        try:
            checkpoint = open_signed(note, trusted, origin=origin)
        except (BrokenError, FormatError) as error:
            expected = f"a checkpoint of one of the logs of {references.system.origin}"
            errors[origin] = BrokenError(Fault.SIGNATURE, where=where, expected=expected, found=error)
            continue
        if checkpoint.size:
            expected = f"log {origin} of {checkpoint.size} entries or more"
            errors[origin] = BrokenError(Fault.INDEX, where=where, expected=expected, found="no such log", index=0)
    for origin in view.anchors.keys() - there if view else ():
        try:
            check_all_present({origin: view.anchors[origin]} if view else {}, origins=())
        except BrokenError as error:
            errors.setdefault(origin, error)
    return [LogVerdict(origin=origin, result=errors[origin]) for origin in sorted(errors)]


async def _read_references(run: _Run, system: Log) -> _References:
    """
    Read what logs are compared with.

    Places to which this installation publishes are optional: those that cannot be read are listed as unread.

    Raises:
        ArchiveError: if a place that the options name cannot be read.
    """
    kept, unread = [*run.options.kept, *await asyncio.to_thread(read_archives, run.options.places, system.origin)], []
    for place in load_places(run.installation.settings) if run.options.since is None else ():
        try:
            kept.append(await asyncio.to_thread(place.read, system.origin))
        except ArchiveError as error:
            unread.append(f"checkpoints that are kept outside: {error}")
    unread += unread_notes(kept)
    return _References(
        system=system,
        system_size=(await read_sound_head(run.auditor, system.log_id)).head.size,
        notes=run.installation.signed_notes(),
        kept=kept,
        unread=tuple(unread),
    )


def _with_kept(report: VerificationReport, references: _References) -> VerificationReport:
    """Add to a report which checkpoints from outside were compared, and which could not be read."""
    read = tuple(f"{len(kept.notes):,} checkpoints kept in {kept.where}" for kept in references.kept)
    return replace(report, checked=(*report.checked, *read), unchecked=(*report.unchecked, *references.unread))


async def _verify(
    run: _Run, log: Log, references: _References, progress: ProgressCallback, *, also_held: Sequence[bytes] = ()
) -> VerificationReport:
    """Verify one log by itself; of the system log, only the history of keys is used."""
    installation, auditor, options = run.installation, run.auditor, run.options
    report = await verify_database(
        auditor,
        log,
        await _trusted(run, references.system),
        held=[*references.held(log.origin), *also_held],
        since=options.since,
        keeper=options.keeper,
        effort=options.effort,
        workers_dsn=installation.as_role(installation.roles.auditor) if options.effort.processes > 1 else None,
        progress=progress,
    )
    report = await _with_ml_dsa(run, log, report)
    if log.origin in references.notes:
        report = replace(report, checked=(*report.checked, "the note that the signer keeps outside the database"))
    else:
        unknown = "what the signer has signed of it last: no note of this log is kept here, outside the database"
        report = replace(report, unchecked=(*report.unchecked, unknown))
    report = replace(report, is_pinned=bool(options.keys))
    if report.since is None:
        compared = await check_indexes(auditor, log, size=report.size)
        report = replace(report, checked=(*report.checked, compared))
    if log.reader is None:
        unread = "payload parts of a log that belongs to no tenant"
        report = replace(report, unchecked=(*report.unchecked, unread))
    else:
        async with as_reader(auditor, log):
            # A resumed verification skips entries that it has verified, but not their parts.
            first = report.first if report.since is not None else 0
            parts = await verify_parts(auditor, log, opener=installation.opener, first=first)
        sealed = (f"{parts.sealed:,} sealed payload parts whose keys are not here",) if parts.sealed else ()
        report = replace(report, parts=parts.entries, unchecked=(*report.unchecked, *sealed))
    if options.opinion is not None:
        leaves = await _leaves(auditor, log, report.size)
        said = options.opinion(leaves, {report.size: report.root})
        report = replace(report, checked=(*report.checked, said))
    return report


async def _system_log_of(connection: Connection, log: Log) -> Log:
    """
    Return the system log that belongs to a log, found by the log's origin.

    Raises:
        BrokenError: if there is none, if two logs have one origin, or if `tenant` of the log contradicts its origin.
    """
    logs = await read_logs(connection)
    named = {one.origin: one for one in logs}
    if len(named) != len(logs):
        twice = next(origin for origin, count in Counter(one.origin for one in logs).items() if count > 1)
        raise BrokenError(Fault.DERIVED, where=LOGS, expected=f"one log of origin {twice}", found="several")
    tenant = tenant_of(log.origin)
    if log.tenant != tenant:
        expected, found = f"tenant {tenant} of {log.origin}", f"tenant {log.tenant}"
        raise BrokenError(Fault.DERIVED, where=LOGS, expected=expected, found=found)
    origin = system_origin_of(log.origin)
    if origin not in named:
        raise BrokenError(Fault.ANCHOR, where=LOGS, expected=f"the system log {origin}", found="no such log")
    return named[origin]


async def _trusted(run: _Run, system: Log) -> Trusted:
    """
    Return the keys to trust with the log that is read next; they may change while a log is verified, so read again.

    A key that is added between this and the log's snapshot is not among them. That is enough: the older one signs, too.
    """
    if not run.options.keys:
        return run.installation.open_keys().keys.history
    key_events: list[bytes] = []
    size = (await read_sound_head(run.auditor, system.log_id)).head.size
    async for entries in iterate_entries(run.auditor, system.log_id, from_index=0, to_index=size):
        key_events += filter(is_key_event, entries)
    return follow_recorded_keys(key_events, run.options.keys, origin=system.origin)


async def _verify_system(run: _Run, references: _References) -> tuple[VerificationReport, Trusted]:
    """Verify the system log; return the report and the keys that it was verified with."""
    system = references.system
    trusted = await _trusted(run, system)
    if not isinstance(trusted, KeyHistory):  # the log records no keys, and the pinned ones may be of another log
        trusted = [*run.installation.open_keys().verifier_keys(system.origin), *trusted]
    held = references.held(system.origin)
    return await verify_database(run.auditor, system, trusted, held=held, effort=run.options.effort), trusted


async def _with_ml_dsa(run: _Run, log: Log, report: VerificationReport) -> VerificationReport:
    """Add which ML-DSA-44 keys have signed the newest checkpoint: of the pinned ones, or else of ours."""
    query, bounds = QUERIES["latest_checkpoint_within"], {"log_id": log.log_id, "size": report.signed_size}
    row = await (await run.auditor.execute(query, bounds)).fetchone()
    if row is None:
        return report
    keys = run.options.keys or run.installation.open_keys().ml_dsa_verifier_keys(log.origin)
    return with_ml_dsa(report, bytes(row[1]), keys)


async def _leaves(connection: Connection, log: Log, size: int) -> bytes:
    leaves = bytearray()
    for first in range(0, size, _PAGE):
        end = min(first + _PAGE, size)
        leaves += b"".join(await read_leaves(connection, log.log_id, from_index=first, to_index=end))
    return bytes(leaves)


async def _view_of_all(run: _Run, system: Log, report: VerificationReport) -> _SystemView:
    """Return the view of the whole system log, which was just verified with this report."""
    trusted = await _trusted(run, system)
    return await _view_of(run, report, trusted, size=report.size)


async def _view_of(run: _Run, report: VerificationReport, trusted: Trusted, *, size: int) -> _SystemView:
    """Return the view of a verified system log: its published checkpoint, and anchors in its first `size` entries."""
    system = await find_log(run.auditor, report.origin)
    pinned = run.options.pinned
    if pinned.policy is None and not pinned.stamp_roots:
        pinned = Pinned(policy=load_policy(run.installation.settings))
    anchors: dict[str, list[Anchor]] = {}
    async for entries in iterate_entries(run.auditor, system.log_id, from_index=0, to_index=size):
        for origin, found in anchors_of(entries).items():
            anchors.setdefault(origin, []).extend(found)
    keys = every_key(trusted, system.origin)
    published = await read_published_checkpoint(run.auditor, system, keys=keys, policy=pinned.policy)
    if published is not None and published.checkpoint.size > report.size:
        published = None
    return _SystemView(report=report, trusted=trusted, anchors=anchors, published=published, pinned=pinned)


async def _with_anchors(
    connection: Connection, log: Log, report: VerificationReport, view: _SystemView, references: _References
) -> VerificationReport:
    """Compare a log with its anchors in the system log, and add who has witnessed them."""
    system, anchors = references.system, view.anchors.get(log.origin, ())
    if log != system:
        if not view.report.is_signed:
            unsigned = f"who wrote {system.origin}, whose anchors were compared: nothing of it is signed"
            report = replace(report, unchecked=(*report.unchecked, unsigned))
        # `check_anchors` refuses an anchor of a larger log before it needs any root.
        sizes = [anchor.size for anchor in anchors if anchor.size <= report.size]
        roots = {at: (await read_frontier(connection, log.log_id, at)).root() for at in sizes}
        newest = check_anchors(anchors, origin=log.origin, size=report.size, root_at=roots.__getitem__)
        checked = (*report.checked, f"{len(anchors):,} anchors in {system.origin}")
        report = replace(report, checked=checked, anchored_size=newest.size if newest else 0)
    judged = judge_archived(references.kept_of(log.origin, system.origin), origin=log.origin, anchors=anchors)
    if view.published is not None:
        by_others = judge_witnessing(
            view.published.note,
            origin=log.origin,
            anchors=anchors,
            keys=every_key(view.trusted, system.origin),
            pinned=view.pinned,
            token=view.published.token,
        )
        judged = furthest(by_others, judged)
    return with_witnessing(report, judged)


async def _all_present(connection: Connection, view: _SystemView) -> str:
    """Check that every anchored log exists: comparing each log with its anchors does not find a removed one."""
    check_all_present(view.anchors, origins={log.origin for log in await read_logs(connection)})
    return f"{len(view.anchors):,} anchored logs are there"
