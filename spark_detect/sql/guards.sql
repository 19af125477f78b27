-- SPDX-License-Identifier: Apache-2.0
-- name: scan_first
-- Holds if the snapshot has no mark under this ruleset: a scan that was recorded is not recorded again.
INSERT INTO detection.marks (log_id, table_uuid, snapshot, ruleset)
VALUES (%(log_id)s, %(table_uuid)s, %(snapshot)s, %(ruleset)s)
ON CONFLICT DO NOTHING

-- name: scan_requested
-- Always holds: a requested scan is recorded once by its group id, and counted here.
INSERT INTO detection.marks AS m (log_id, table_uuid, snapshot, ruleset)
VALUES (%(log_id)s, %(table_uuid)s, %(snapshot)s, %(ruleset)s)
ON CONFLICT (log_id, table_uuid, snapshot, ruleset) DO UPDATE SET scans = m.scans + 1
