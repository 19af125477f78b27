"""
Anchoring: what keeps the log's own keeper honest. Anchors, time stamps, cosigned checkpoints.

Read `anchors.py` first: the system log records size and root of every log, so that only it needs to be seen by others.
`judging.py` says what an auditor may conclude. ANCHORED means: the root that was verified follows from a checkpoint of
the system log that (a) the quorum of a witness policy has cosigned, or (b) carries a time stamp of an authority, policy
and authority pinned by the auditor beforehand. A tenant's log is anchored up to the newest size that the system log has
recorded of it below that checkpoint; entries behind it are NOT ANCHORED yet. With nothing pinned, nothing is anchored.

`timestamp.py` checks stamps (RFC 3161; `der.py` and `cms.py` read them, `stamp_time.py` says by when a note existed),
`stamping.py` asks for them. `anchor_log.py` appends anchors, `published.py` joins a checkpoint with what others said of
it; these two talk to PostgreSQL.

Only pure names are re-exported here: importing them loads no database driver.
"""

from ledger.anchoring.anchors import Anchor, anchors_of, check_all_present, check_anchors
from ledger.anchoring.judging import Anchoring, AnchoringKind, Pinned, judge_anchoring, stamped_note
from ledger.anchoring.timestamp import Stamp, check_stamp, parse_roots

__all__ = [
    "Anchor",
    "Anchoring",
    "AnchoringKind",
    "Pinned",
    "Stamp",
    "anchors_of",
    "check_all_present",
    "check_anchors",
    "check_stamp",
    "judge_anchoring",
    "parse_roots",
    "stamped_note",
]
