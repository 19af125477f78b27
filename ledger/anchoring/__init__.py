"""
Anchoring: what keeps the log's own keeper honest. Anchors, time stamps, checkpoints that are kept outside.

Read `anchors.py` first: the system log records size and root of every log, so that only it needs to be seen by others.
Two words for two things. ANCHORED means: the system log has recorded size and root of the log; entries behind the
newest anchor are NOT ANCHORED yet. WITNESSED means: the root that was verified follows from a checkpoint of the system
log that (a) the quorum of a witness policy has cosigned, (b) carries a time stamp of an authority, policy and authority
pinned by the auditor beforehand, or (c) is kept outside, where the auditor takes it from. A tenant's log is witnessed
up to the newest anchor below that checkpoint; with nothing pinned or kept, nothing is. `judge_witnessing` says what an
auditor may conclude.

`timestamp.py` checks stamps (RFC 3161; `cms.py` reads them), `stamping.py` asks for them. `anchor_log.py` appends
anchors, `published.py` joins a checkpoint with what others said of it; these two talk to PostgreSQL. `kept.py` says
what a place outside is, `places.py` and `bucket_place.py` have the three there are: `lakeproof up` publishes to them,
and `verify` holds the logs against what they have.

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
