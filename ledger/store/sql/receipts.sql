-- SPDX-License-Identifier: Apache-2.0
-- name: newest_checkpoints
-- The newest signed checkpoint of each of several logs that has one.
SELECT w.log_id, c.size, c.note
FROM unnest(%(log_ids)b::integer[]) AS w (log_id)
CROSS JOIN LATERAL (
    SELECT size, note FROM ledger.checkpoints WHERE log_id = w.log_id ORDER BY size DESC LIMIT 1
) AS c
