"""
`verify` of a log in the database: what `verifying.py` needs an installation for.

Whom it trusts: without a pinned key, the history of keys in the signer's own directory, which is outside the database.
With one, what the system log tells of the keys that this one vouches for; then the system log is always verified too.

Which log is the system log, and whose a log is, its own name tells, never a column beside it. The notes that the signer
keeps outside the database are held against both logs: nobody who has the database alone can set one back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ledger.anchoring import Anchor, Pinned, anchors_of, check_all_present, check_anchors, judge_anchoring
from ledger.anchoring.published import read_published_checkpoint
from ledger.commands.room import LogRoom, OpenRoom
from ledger.errors import BrokenError, Fault
from ledger.export import as_reader
from ledger.read import Connection, Log, iterate_entries, read_leaves, read_logs
from ledger.recovering.continuation import system_origin_beside
from ledger.recovering.continuing import tenant_of
from ledger.signing.key_history import KeyHistory
from ledger.stored_tree import read_frontier
from ledger.verify.anchored import with_anchoring
from ledger.verify.cosigned import with_ml_dsa
from ledger.verify.database import verify_database
from ledger.verify.database_bounds import read_sound_head
from ledger.verify.database_rows import QUERIES
from ledger.verify.indexes import check_indexes
from ledger.verify.parts import verify_parts
from ledger.verify.rules import Progress, Report
from ledger.verify.trusted import Trusted, every_key, follow_told, tells_of_keys
from ledger.verify.wanted import Wanted

LOGS: Final = "ledger.logs"
_PAGE: Final = 65_536


async def verify_log(open_room: OpenRoom, name: str, wanted: Wanted, *, progress: Progress) -> Report:
    """
    Verify a log in the database and its payload parts; without pinned keys, with those of this installation.

    Unless only its newest entries are verified, the system log is too, and that the log is what anchors in it say.

    Raises:
        BrokenError: at the first fault.
        LedgerError: if there is no such log, or no key.
    """
    async with open_room() as room:
        return await _verify(room, await room.find_log(name), wanted, progress)


async def verify_log_deeply(open_room: OpenRoom, name: str, wanted: Wanted, *, progress: Progress) -> Report:
    """
    Verify a log as `verify_log` does, and that what the installation keeps beside it is what the log says.

    Raises:
        BrokenError: at the first fault; of what lies beside the log (`Fault.DERIVED`), with its table and key.
        LedgerError: if there is no such log, or no key.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        report = await _verify(room, log, wanted, progress)
        return replace(report, checked=(*report.checked, *await room.check_deeply(log)))


async def _verify(room: LogRoom, log: Log, wanted: Wanted, progress: Progress) -> Report:
    system = await _system_beside(room.connection, log)
    notes = room.signed_notes()  # before any log is read: one that grows meanwhile still goes on from its note
    report = await verify_database(
        room.connection,
        log,
        await _trusted(room, system, wanted),
        held=[*wanted.held, *_note_of(log, notes)],
        since=wanted.since,
        keeper=wanted.keeper,
        effort=wanted.effort,
        workers_dsn=room.auditor_dsn if wanted.effort.processes > 1 else None,
        progress=progress,
    )
    report = await _with_ml_dsa(room, log, report, wanted)
    if log.origin in notes:
        report = replace(report, checked=(*report.checked, "the note that the signer keeps outside the database"))
    else:
        unknown = "what the signer has signed of it last: no note of this log is kept here, outside the database"
        report = replace(report, unchecked=(*report.unchecked, unknown))
    report = replace(report, is_pinned=bool(wanted.keys))
    if report.since is None:
        compared = await check_indexes(room.connection, log, size=report.size)
        report = replace(report, checked=(*report.checked, compared))
    if log.reader is None:
        unread = "payload parts of a log that belongs to no tenant"
        report = replace(report, unchecked=(*report.unchecked, unread))
    else:
        async with as_reader(room.connection, log):
            # Of work that is taken up again only entries are done: parts are read behind the last of them.
            first = report.first if report.since is not None else 0
            parts = await verify_parts(room.connection, log, opener=room.opener, first=first)
        sealed = (f"{parts.sealed:,} sealed payload parts whose keys are not here",) if parts.sealed else ()
        report = replace(report, parts=parts.entries, unchecked=(*report.unchecked, *sealed))
    if wanted.opinion is not None:
        leaves = await _leaves(room.connection, log, report.size)
        said = wanted.opinion(leaves, {report.size: report.root})
        report = replace(report, checked=(*report.checked, said))
    if report.since is not None:
        if wanted.keys:  # the system log told whom to trust with the new entries: all of it must be sound
            await _verify_system(room, system, wanted, notes)
        return replace(report, unchecked=(*report.unchecked, "anchors in the system log"))
    return await _with_anchors(room, log, system, report, wanted, notes)


async def _system_beside(connection: Connection, log: Log) -> Log:
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
    origin = system_origin_beside(log.origin)
    if origin not in named:
        raise BrokenError(Fault.ANCHOR, where=LOGS, expected=f"the system log {origin}", found="no such log")
    return named[origin]


def _note_of(log: Log, notes: Mapping[str, bytes]) -> Sequence[bytes]:
    return [notes[log.origin]] if log.origin in notes else []


async def _trusted(room: LogRoom, system: Log, wanted: Wanted) -> Trusted:
    """
    Return whom to trust with a log that is read next: keys may change while a log is verified, so it is asked again.

    Of a key that joins between here and the log's snapshot nothing is known, and need not be: the older one signs too.
    """
    if not wanted.keys:
        return room.key_history()
    told: list[bytes] = []
    size = (await read_sound_head(room.connection, system.log_id)).head.size
    async for entries in iterate_entries(room.connection, system.log_id, from_index=0, to_index=size):
        told += filter(tells_of_keys, entries)
    return follow_told(told, wanted.keys, origin=system.origin)


async def _verify_system(
    room: LogRoom, system: Log, wanted: Wanted, notes: Mapping[str, bytes]
) -> tuple[Report, Trusted]:
    """Verify the system log, and return with the report whom it was verified with."""
    trusted = await _trusted(room, system, wanted)
    if not isinstance(trusted, KeyHistory):  # it tells of no keys, and those that are pinned may be of another log
        trusted = [*room.verifier_keys(system.origin), *trusted]
    held = _note_of(system, notes)
    return await verify_database(room.connection, system, trusted, held=held, effort=wanted.effort), trusted


async def _with_ml_dsa(room: LogRoom, log: Log, report: Report, wanted: Wanted) -> Report:
    """Say which ML-DSA-44 keys have signed the newest checkpoint: of those that are pinned, or else of this room's."""
    query, bounds = QUERIES["latest_checkpoint_within"], {"log_id": log.log_id, "size": report.signed_size}
    row = await (await room.connection.execute(query, bounds)).fetchone()
    if row is None:
        return report
    return with_ml_dsa(report, bytes(row[1]), wanted.keys or room.ml_dsa_verifier_keys(log.origin))


async def _leaves(connection: Connection, log: Log, size: int) -> bytes:
    leaves = bytearray()
    for first in range(0, size, _PAGE):
        end = min(first + _PAGE, size)
        leaves += b"".join(await read_leaves(connection, log.log_id, from_index=first, to_index=end))
    return bytes(leaves)


async def _with_anchors(
    room: LogRoom, log: Log, system: Log, report: Report, wanted: Wanted, notes: Mapping[str, bytes]
) -> Report:
    """Check what the system log says of this one, and judge who vouches for it."""
    connection = room.connection
    pinned = wanted.pinned
    if pinned.policy is None and not pinned.stamp_roots:
        pinned = Pinned(policy=room.witness_policy())
    if log == system:
        size, trusted = report.size, await _trusted(room, system, wanted)
    else:
        verified, trusted = await _verify_system(room, system, wanted, notes)
        size = verified.size
        if not verified.is_signed:
            unsigned = f"who wrote {system.origin}, whose anchors were compared: nothing of it is signed"
            report = replace(report, unchecked=(*report.unchecked, unsigned))
    anchors: list[Anchor] = []
    if log != system:
        async for entries in iterate_entries(connection, system.log_id, from_index=0, to_index=size):
            anchors += anchors_of(entries).get(log.origin, ())
        # Before any root is asked for, `check_anchors` refuses an anchor of a larger log.
        sizes = [anchor.size for anchor in anchors if anchor.size <= report.size]
        roots = {at: (await read_frontier(connection, log.log_id, at)).root() for at in sizes}
        check_anchors(anchors, origin=log.origin, size=report.size, root_at=roots.__getitem__)
        report = replace(report, checked=(*report.checked, f"{len(anchors):,} anchors in {system.origin}"))
    else:
        report = replace(report, checked=(*report.checked, await _all_present(connection, system, size)))
    keys = every_key(trusted, system.origin)
    published = await read_published_checkpoint(connection, system, keys=keys, policy=pinned.policy)
    if published is None or published.checkpoint.size > size:
        return report
    judged = judge_anchoring(
        published.note, origin=log.origin, anchors=anchors, keys=keys, pinned=pinned, token=published.token
    )
    return with_anchoring(report, judged)


async def _all_present(connection: Connection, system: Log, size: int) -> str:
    """Check that every log that the system log has anchored is there, and say so: one that was removed is not asked."""
    first: dict[str, Sequence[Anchor]] = {}
    async for entries in iterate_entries(connection, system.log_id, from_index=0, to_index=size):
        for origin, anchors in anchors_of(entries).items():
            first.setdefault(origin, anchors[:1])
    check_all_present(first, origins={log.origin for log in await read_logs(connection)})
    return f"{len(first):,} anchored logs are there"
