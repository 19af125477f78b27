# SPDX-License-Identifier: Apache-2.0
"""
Anchoring: evidence outside a log that it was not rewritten. Anchors, time stamps, checkpoints in archives.

Read `anchors.py` first: the system log records size and root of every log, so that others need to see only the system
log. Two words for two things. ANCHORED: the system log has recorded size and root of the log; entries after the newest
anchor are NOT ANCHORED yet. WITNESSED: the verified root follows from a checkpoint of the system log that (a) the
quorum of a witness policy has cosigned, (b) a time-stamping authority has stamped, policy and authority pinned by the
auditor beforehand, or (c) is in an archive from which the auditor takes it. A tenant's log is witnessed up to the
newest anchor below that checkpoint. With nothing pinned and nothing archived, nothing is witnessed. `judge_witnessing`
and `judge_archived` say what an auditor may conclude.

`timestamp.py` checks stamps (RFC 3161; `cms.py` declares their ASN.1), `stamping.py` requests them. `anchor_log.py`
appends anchors, `published.py` joins a checkpoint with its cosignatures and stamp; these two use PostgreSQL.
`archive.py` says what an archive offers, `archives.py` and `bucket_archive.py` have the three kinds: `lakeproof up`
publishes to them, and `verify` compares the logs with them.

Only pure names are re-exported here: importing them loads no database driver.
"""

from ledger.anchoring.anchors import (
    Anchor,
    Pinned,
    Witnessing,
    WitnessKind,
    anchors_of,
    check_all_present,
    check_anchors,
    furthest,
    judge_archived,
    judge_witnessing,
    stamped_note,
)
from ledger.anchoring.timestamp import Stamp, check_stamp, parse_roots

__all__ = [
    "Anchor",
    "Pinned",
    "Stamp",
    "WitnessKind",
    "Witnessing",
    "anchors_of",
    "check_all_present",
    "check_anchors",
    "check_stamp",
    "furthest",
    "judge_archived",
    "judge_witnessing",
    "parse_roots",
    "stamped_note",
]
