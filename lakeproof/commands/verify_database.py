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


@dataclass(frozen=True, slots=True, kw_only=True)
class _References:
    """
    What logs are compared with, read before any of them: a log that grows meanwhile still extends it.

    `notes` are those that the signer keeps outside the database, by origin; `kept` lie outside the installation.
    `system_size` is that of the system log: an anchor behind it may be of what a log became after it was read.
    """

    system: Log
    system_size: int
    notes: Mapping[str, bytes]
    kept: Sequence[ArchivedNotes]
    unread: tuple[str, ...]

    def held(self, origin: str) -> list[bytes]:
        """Return the notes of a log, the signer's and those that are kept."""
        own = [self.notes[origin]] if origin in self.notes else []
        return [*own, *(note for kept in self.kept for note in kept.notes if claimed_origin(note) == origin)]

    def kept_of(self, *origins: str) -> list[tuple[str, Checkpoint]]:
        """Return the checkpoints of these logs that are kept, with where; they were opened when the log was read."""
        return [
            (kept.where, parse_checkpoint(parse_note(note)[0]))
            for kept in self.kept
            for note in kept.notes
            if claimed_origin(note) in origins
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SystemView:
    """The system log, verified: whom it was verified with, its anchors by origin, and what of it is published."""

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

    Unless only its newest entries are verified, the system log is too, and that the log is what anchors in it say.

    Raises:
        BrokenError: at the first fault.
        LedgerError: if there is no such log, or no key, or a place that was named cannot be read.
    """
    return await _verify_alone(
        installation, auditor, await find_named_log(installation, auditor, name), options, progress
    )


async def verify_log_deeply(
    installation: Installation, auditor: Connection, name: str, options: VerifyOptions, *, progress: ProgressCallback
) -> VerificationReport:
    """
    Verify a log as `verify_log` does, and that what the installation keeps beside it is what the log says.

    Raises:
        BrokenError: at the first fault; of what lies beside the log (`Fault.DERIVED`), with its table and key.
        LedgerError: as `verify_log`.
    """
    log = await find_named_log(installation, auditor, name)
    report = await _verify_alone(installation, auditor, log, options, progress)
    return replace(report, checked=(*report.checked, *await check_log_deeply(installation, auditor, log)))


async def verify_every_log(
    installation: Installation, auditor: Connection, options: VerifyOptions, *, progress: ProgressCallback
) -> Sequence[LogVerdict]:
    """
    Verify every log of the installation as `verify_log` does, the system log first, and that none is missing.

    A fault in one keeps the others from nothing: each has its verdict, and so has a log that is known and not there.

    Raises:
        BrokenError: if the logs cannot be listed.
        LedgerError: as `verify_log`.
    """
    return await _verify_every(installation, auditor, options, progress, _nothing_deeper)


async def verify_every_log_deeply(
    installation: Installation, auditor: Connection, options: VerifyOptions, *, progress: ProgressCallback
) -> Sequence[LogVerdict]:
    """
    Verify every log as `verify_every_log` does, and that what the installation keeps beside each is what it says.

    Raises:
        BrokenError, LedgerError: as `verify_every_log`.
    """
    return await _verify_every(
        installation, auditor, options, progress, partial(check_log_deeply, installation, auditor)
    )


async def check_log_deeply(installation: Installation, auditor: Connection, log: Log) -> Sequence[str]:
    """
    Check that what the installation keeps beside a verified log is what the log says; return what was checked.

    Raises:
        BrokenError: (`Fault.DERIVED`) if something is not; names the table and the key.
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


async def _verify_alone(
    installation: Installation, auditor: Connection, log: Log, options: VerifyOptions, progress: ProgressCallback
) -> VerificationReport:
    references = await _read_references(installation, auditor, await _system_log_of(auditor, log), options)
    foreign = [note for kept in references.kept for note in kept.notes]
    foreign = [note for note in foreign if claimed_origin(note) not in {log.origin, references.system.origin}]
    # Notes of other logs are refused there.
    report = await _verify(installation, auditor, log, options, references, progress, also_held=foreign)
    if report.since is not None:
        if options.keys:  # the system log says whom to trust with the new entries: all of it must be sound
            await _verify_system(installation, auditor, options, references)
        return replace(report, unchecked=(*report.unchecked, "anchors in the system log"))
    if log == references.system:
        view = await _view_of_all(installation, auditor, log, report, options)
        report = replace(report, checked=(*report.checked, await _all_present(auditor, view)))
    else:
        verified, trusted = await _verify_system(installation, auditor, options, references)
        view = await _view_of(installation, auditor, verified, trusted, options, size=references.system_size)
    return _with_kept(await _with_anchors(auditor, log, report, view, references), references)


async def _verify_every(
    installation: Installation,
    auditor: Connection,
    options: VerifyOptions,
    progress: ProgressCallback,
    check_deeply: Callable[[Log], Awaitable[Sequence[str]]],
) -> Sequence[LogVerdict]:
    system = await _system_of(installation, auditor)
    logs = sorted(await read_logs(auditor), key=lambda log: (log != system, log.origin))
    references = await _read_references(installation, auditor, system, options)
    view: _SystemView | None = None
    verdicts = []
    for log in logs:
        try:
            await _system_log_of(auditor, log)
            report = await _verify(installation, auditor, log, options, references, progress)
            if log == system:
                view = await _view_of_all(installation, auditor, log, report, options)
                report = _with_kept(report, references)
            if view is None:
                lost = "anchors in the system log, which is broken itself"
                report = replace(report, unchecked=(*report.unchecked, lost))
            else:
                report = await _with_anchors(auditor, log, report, view, references)
            report = replace(report, checked=(*report.checked, *await check_deeply(log)))
            verdicts.append(LogVerdict(origin=log.origin, result=report))
        except BrokenError as error:
            verdicts.append(LogVerdict(origin=log.origin, result=error))
    there = {log.origin for log in logs}
    return [*verdicts, *await _missing(installation, auditor, options, references, view, there=there)]


async def _system_of(installation: Installation, auditor: Connection) -> Log:
    try:
        return await find_named_log(installation, auditor, "system")
    except NoSuchLogError as error:
        raise BrokenError(Fault.ANCHOR, where=LOGS, expected="the system log", found="no such log") from error


async def _missing(
    installation: Installation,
    auditor: Connection,
    options: VerifyOptions,
    references: _References,
    view: _SystemView | None,
    *,
    there: Collection[str],
) -> Sequence[LogVerdict]:
    """Return a fault for each log that is known from elsewhere and not in the database."""
    errors: dict[str, BrokenError] = {}
    trusted = await _trusted(installation, auditor, references.system, options) if view is None else view.trusted
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


async def _read_references(
    installation: Installation, auditor: Connection, system: Log, options: VerifyOptions
) -> _References:
    """
    Read what logs are held against; of places that this installation publishes to, those that can be read.

    Raises:
        ArchiveError: if a place that was named cannot be read.
    """
    kept, unread = [*options.kept, *await asyncio.to_thread(read_archives, options.places, system.origin)], []
    for place in load_places(installation.settings) if options.since is None else ():
        try:
            kept.append(await asyncio.to_thread(place.read, system.origin))
        except ArchiveError as error:
            unread.append(f"checkpoints that are kept outside: {error}")
    unread += unread_notes(kept)
    return _References(
        system=system,
        system_size=(await read_sound_head(auditor, system.log_id)).head.size,
        notes=installation.signed_notes(),
        kept=kept,
        unread=tuple(unread),
    )


def _with_kept(report: VerificationReport, references: _References) -> VerificationReport:
    """Say what was read outside, and what could not be."""
    read = tuple(f"{len(kept.notes):,} checkpoints kept in {kept.where}" for kept in references.kept)
    return replace(report, checked=(*report.checked, *read), unchecked=(*report.unchecked, *references.unread))


async def _verify(
    installation: Installation,
    auditor: Connection,
    log: Log,
    options: VerifyOptions,
    references: _References,
    progress: ProgressCallback,
    *,
    also_held: Sequence[bytes] = (),
) -> VerificationReport:
    """Verify one log, and all that can be verified of it without another, but for whom it trusts."""
    report = await verify_database(
        auditor,
        log,
        await _trusted(installation, auditor, references.system, options),
        held=[*references.held(log.origin), *also_held],
        since=options.since,
        keeper=options.keeper,
        effort=options.effort,
        workers_dsn=installation.as_role(installation.roles.auditor) if options.effort.processes > 1 else None,
        progress=progress,
    )
    report = await _with_ml_dsa(installation, auditor, log, report, options)
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
            # Of work that is taken up again only entries are done: parts are read behind the last of them.
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
    Return the system log of the installation that has this log, by its name.

    Raises:
        BrokenError: if it is not there, if two logs have one name, or if a log is not its tenant's.
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


async def _trusted(installation: Installation, auditor: Connection, system: Log, options: VerifyOptions) -> Trusted:
    """
    Return whom to trust with a log that is read next: keys may change while a log is verified, so they are read again.

    Of a key that joins between here and the log's snapshot nothing is known, and need not be: the older one signs too.
    """
    if not options.keys:
        return installation.open_keys().keys.history
    key_events: list[bytes] = []
    size = (await read_sound_head(auditor, system.log_id)).head.size
    async for entries in iterate_entries(auditor, system.log_id, from_index=0, to_index=size):
        key_events += filter(is_key_event, entries)
    return follow_recorded_keys(key_events, options.keys, origin=system.origin)


async def _verify_system(
    installation: Installation, auditor: Connection, options: VerifyOptions, references: _References
) -> tuple[VerificationReport, Trusted]:
    """Verify the system log, and return with the report whom it was verified with."""
    system = references.system
    trusted = await _trusted(installation, auditor, system, options)
    if not isinstance(trusted, KeyHistory):  # it tells of no keys, and those that are pinned may be of another log
        trusted = [*installation.open_keys().verifier_keys(system.origin), *trusted]
    held = references.held(system.origin)
    return await verify_database(auditor, system, trusted, held=held, effort=options.effort), trusted


async def _with_ml_dsa(
    installation: Installation, auditor: Connection, log: Log, report: VerificationReport, options: VerifyOptions
) -> VerificationReport:
    """Say which ML-DSA-44 keys have signed the newest checkpoint: of those that are pinned, or else of ours."""
    query, bounds = QUERIES["latest_checkpoint_within"], {"log_id": log.log_id, "size": report.signed_size}
    row = await (await auditor.execute(query, bounds)).fetchone()
    if row is None:
        return report
    return with_ml_dsa(report, bytes(row[1]), options.keys or installation.open_keys().ml_dsa_verifier_keys(log.origin))


async def _leaves(connection: Connection, log: Log, size: int) -> bytes:
    leaves = bytearray()
    for first in range(0, size, _PAGE):
        end = min(first + _PAGE, size)
        leaves += b"".join(await read_leaves(connection, log.log_id, from_index=first, to_index=end))
    return bytes(leaves)


async def _view_of_all(
    installation: Installation, auditor: Connection, system: Log, report: VerificationReport, options: VerifyOptions
) -> _SystemView:
    """Return what the whole system log says of the others, where that log is what was verified last."""
    trusted = await _trusted(installation, auditor, system, options)
    return await _view_of(installation, auditor, report, trusted, options, size=report.size)


async def _view_of(
    installation: Installation,
    auditor: Connection,
    report: VerificationReport,
    trusted: Trusted,
    options: VerifyOptions,
    *,
    size: int,
) -> _SystemView:
    """Return what the verified system log says of the others in its first `size` entries, and who has witnessed it."""
    system = await find_log(auditor, report.origin)
    pinned = options.pinned
    if pinned.policy is None and not pinned.stamp_roots:
        pinned = Pinned(policy=load_policy(installation.settings))
    anchors: dict[str, list[Anchor]] = {}
    async for entries in iterate_entries(auditor, system.log_id, from_index=0, to_index=size):
        for origin, found in anchors_of(entries).items():
            anchors.setdefault(origin, []).extend(found)
    keys = every_key(trusted, system.origin)
    published = await read_published_checkpoint(auditor, system, keys=keys, policy=pinned.policy)
    if published is not None and published.checkpoint.size > report.size:
        published = None
    return _SystemView(report=report, trusted=trusted, anchors=anchors, published=published, pinned=pinned)


async def _with_anchors(
    connection: Connection, log: Log, report: VerificationReport, view: _SystemView, references: _References
) -> VerificationReport:
    """Check what the system log says of a log, and judge who has witnessed that."""
    system, anchors = references.system, view.anchors.get(log.origin, ())
    if log != system:
        if not view.report.is_signed:
            unsigned = f"who wrote {system.origin}, whose anchors were compared: nothing of it is signed"
            report = replace(report, unchecked=(*report.unchecked, unsigned))
        # Before any root is asked for, `check_anchors` refuses an anchor of a larger log.
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
    """Check that every log that the system log has anchored is there: one that was removed is not compared."""
    check_all_present(view.anchors, origins={log.origin for log in await read_logs(connection)})
    return f"{len(view.anchors):,} anchored logs are there"
