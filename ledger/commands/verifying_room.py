"""
`verify` of a log in the database: what `verifying.py` needs an installation for.

Whom it trusts: without a pinned key, the history of keys in the signer's own directory, which is outside the database.
With one, what the system log tells of the keys that this one vouches for; then the system log is always verified too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ledger.anchoring import Anchor, Pinned, anchors_of, check_all_present, check_anchors, judge_anchoring
from ledger.anchoring.published import read_published_checkpoint
from ledger.commands.room import LogRoom, OpenRoom
from ledger.export import as_reader
from ledger.read import Connection, Log, iterate_entries, read_head, read_leaves, read_logs
from ledger.signing.key_history import KeyHistory
from ledger.stored_tree import read_frontier
from ledger.verify.anchored import with_anchoring
from ledger.verify.database import verify_database
from ledger.verify.indexes import check_indexes
from ledger.verify.parts import verify_parts
from ledger.verify.rules import Progress, Report
from ledger.verify.trusted import Trusted, every_key, follow_told, tells_of_keys
from ledger.verify.wanted import Wanted

SYSTEM: Final = "system"
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
    report = await verify_database(
        room.connection,
        log,
        await _trusted(room, wanted),
        held=wanted.held,
        since=wanted.since,
        keeper=wanted.keeper,
        effort=wanted.effort,
        workers_dsn=room.auditor_dsn if wanted.effort.processes > 1 else None,
        progress=progress,
    )
    if report.since is None:
        compared = await check_indexes(room.connection, log, size=report.size)
        report = replace(report, checked=(*report.checked, compared))
    if log.reader is None:
        report = replace(report, unchecked=("payload parts of a log that belongs to no tenant",))
    else:
        async with as_reader(room.connection, log):
            parts = await verify_parts(room.connection, log, opener=room.opener, first=report.first)
        sealed = (f"{parts.sealed:,} sealed payload parts whose keys are not here",) if parts.sealed else ()
        report = replace(report, parts=parts.entries, unchecked=sealed)
    if wanted.opinion is not None:
        leaves = await _leaves(room.connection, log, report.size)
        said = wanted.opinion(leaves, {report.size: report.root})
        report = replace(report, checked=(*report.checked, said))
    if report.since is not None:
        if wanted.keys:  # the system log told whom to trust with the new entries: all of it must be sound
            await _verify_system(room, await room.find_log(SYSTEM), wanted)
        return replace(report, unchecked=(*report.unchecked, "anchors in the system log"))
    return await _with_anchors(room, log, report, wanted)


async def _trusted(room: LogRoom, wanted: Wanted) -> Trusted:
    """
    Return whom to trust with a log that is read next: keys may change while a log is verified, so it is asked again.

    Of a key that joins between here and the log's snapshot nothing is known, and need not be: the older one signs too.
    """
    if not wanted.keys:
        return room.key_history()
    system = await room.find_log(SYSTEM)
    told: list[bytes] = []
    size = (await read_head(room.connection, system.log_id)).size
    async for entries in iterate_entries(room.connection, system.log_id, from_index=0, to_index=size):
        told += filter(tells_of_keys, entries)
    return follow_told(told, wanted.keys, origin=system.origin)


async def _verify_system(room: LogRoom, system: Log, wanted: Wanted) -> tuple[int, Trusted]:
    """Verify the system log; return its size, and whom it was verified with."""
    trusted = await _trusted(room, wanted)
    if not isinstance(trusted, KeyHistory):  # it tells of no keys, and those that are pinned may be of another log
        trusted = [*room.verifier_keys(system.origin), *trusted]
    return (await verify_database(room.connection, system, trusted, effort=wanted.effort)).size, trusted


async def _leaves(connection: Connection, log: Log, size: int) -> bytes:
    leaves = bytearray()
    for first in range(0, size, _PAGE):
        end = min(first + _PAGE, size)
        leaves += b"".join(await read_leaves(connection, log.log_id, from_index=first, to_index=end))
    return bytes(leaves)


async def _with_anchors(room: LogRoom, log: Log, report: Report, wanted: Wanted) -> Report:
    """Check what the system log says of this one, and judge who vouches for it."""
    connection = room.connection
    pinned = wanted.pinned
    if pinned.policy is None and not pinned.stamp_roots:
        pinned = Pinned(policy=room.witness_policy())
    system = await room.find_log(SYSTEM)
    if log == system:
        size, trusted = report.size, await _trusted(room, wanted)
    else:
        size, trusted = await _verify_system(room, system, wanted)
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
