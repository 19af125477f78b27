-- SPDX-License-Identifier: Apache-2.0
-- name: raised
-- Which of some alerts are in the log, each the only event of its group.
SELECT group_id, entry FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY(%(group_ids)s::uuid[])
