"""
How far the log in a directory is anchored, in the export of the system log that lies elsewhere, and who witnesses it.

What the verified system log says of this log is held against it. Witnesses and stamps are under the system log's
checkpoint or, without that log, under this one's own. What that may be called is for `ledger.anchoring` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ledger.anchoring import (
    Pinned,
    Witnessing,
    anchors_of,
    check_anchors,
    furthest,
    judge_kept,
    judge_witnessing,
)
from ledger.checkpoint import Checkpoint
from ledger.directory import LogDirectory
from ledger.edge import frontier_of
from ledger.errors import LedgerError
from ledger.exported_tree import exported_edge
from ledger.verify.rules import Report
from ledger.verify.signer_keys import SystemExport, entries_of
from ledger.verify.trusted import Trusted, every_key


def judge_directory(
    path: Path,
    report: Report,
    *,
    trusted: Trusted,
    pinned: Pinned,
    system: SystemExport | None = None,
    token: bytes | None = None,
    kept: Sequence[tuple[str, Checkpoint]] = (),
) -> Report:
    """
    Return `report`, of the log in the directory `path`, with how far it is anchored and witnessed.

    `trusted` is whom the log was verified with. `system` is an export of the system log; without it only the log's own
    note can vouch. `token` is a time stamp over the checkpoint of the one that vouches. `kept` are
    checkpoints of either that lie outside, each with where; both logs were verified to go on from theirs.

    Raises:
        BrokenError: if what the system log says of this log is not so, or a line or stamp is bad.
        FormatError: if a note or the token is not of its form.
        UnreadableError: if a directory cannot be read.
        LedgerError: if the log is the system log itself.
    """
    if system is None:
        note = LogDirectory(path).read_checkpoint()
        keys = every_key(trusted, report.origin)
        judged = judge_witnessing(note, origin=report.origin, anchors=(), keys=keys, pinned=pinned, token=token)
        own = judge_kept(kept, origin=report.origin, anchors=())
        return with_witnessing(report, furthest(judged, own))
    verified = system.report
    if report.origin == verified.origin:
        raise LedgerError(
            f"{path} is itself an export of the system log {verified.origin}: name the export of the log that it "
            "vouches for"
        )
    anchors = anchors_of(entries_of(system.path, verified.size)).get(report.origin, ())
    directory = LogDirectory(path)

    def root_at(size: int) -> bytes:
        return frontier_of(exported_edge(directory, size=size, of=report.size)).root()

    newest = check_anchors(anchors, origin=report.origin, size=report.size, root_at=root_at)
    note = LogDirectory(system.path).read_checkpoint()
    keys = every_key(system.trusted, verified.origin)
    judged = judge_witnessing(note, origin=report.origin, anchors=anchors, keys=keys, pinned=pinned, token=token)
    checked = f"{len(anchors):,} anchors in {verified.origin}, a log of {verified.size:,} entries"
    anchored_size = newest.size if newest else 0
    judged = furthest(judged, judge_kept(kept, origin=report.origin, anchors=anchors))
    return with_witnessing(replace(report, checked=(*report.checked, checked), anchored_size=anchored_size), judged)


def with_witnessing(report: Report, judged: Witnessing) -> Report:
    """Return a report that says what was judged."""
    if not judged.kinds:
        return report
    time = f", {judged.time:%Y-%m-%d %H:%M:%S} UTC" if judged.time else ""
    by = (f"{' and '.join(judged.kinds)}{time}", *judged.by)
    return replace(report, witnessed_size=min(judged.size, report.size), witnessed_by=by)
