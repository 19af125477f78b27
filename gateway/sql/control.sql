-- name: control_index
-- The index of the newest control entry of one log, unlocked: what must be known before anything is judged.
SELECT control_index FROM ledger.heads WHERE log_id = %(log_id)s
