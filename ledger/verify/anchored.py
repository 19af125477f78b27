"""
Whether the log in a directory is anchored: by the export of the system log that lies elsewhere, or by its own note.

What the verified system log says of this log is held against it. What that may be called is for `ledger.anchoring` to
say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ledger.anchoring import Anchoring, Pinned, anchors_of, check_anchors, judge_anchoring
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
) -> Report:
    """
    Return `report`, of the log in the directory `path`, with how far it is anchored.

    `trusted` is whom the log was verified with. `system` is an export of the system log; without it only the log's own
    note can vouch. `token` is a time stamp over the checkpoint of the one that vouches.

    Raises:
        BrokenError: if what the system log says of this log is not so, or a line or stamp is bad.
        FormatError: if a note or the token is not of its form.
        UnreadableError: if a directory cannot be read.
        LedgerError: if the log is the system log itself.
    """
    if system is None:
        note = LogDirectory(path).read_checkpoint()
        keys = every_key(trusted, report.origin)
        judged = judge_anchoring(note, origin=report.origin, anchors=(), keys=keys, pinned=pinned, token=token)
        return with_anchoring(report, judged)
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

    check_anchors(anchors, origin=report.origin, size=report.size, root_at=root_at)
    note = LogDirectory(system.path).read_checkpoint()
    keys = every_key(system.trusted, verified.origin)
    judged = judge_anchoring(note, origin=report.origin, anchors=anchors, keys=keys, pinned=pinned, token=token)
    checked = f"{len(anchors):,} anchors in {verified.origin}, a log of {verified.size:,} entries"
    return with_anchoring(replace(report, checked=(*report.checked, checked)), judged)


def with_anchoring(report: Report, judged: Anchoring) -> Report:
    """Return a report that says what was judged."""
    by = (f"{judged.kind}, {judged.time:%Y-%m-%d %H:%M:%S} UTC", *judged.by) if judged.time else ()
    return replace(report, anchored_size=min(judged.size, report.size), anchored_by=by)
