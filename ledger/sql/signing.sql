-- name: hold_signer_lock
-- True if this session is the one signer of all logs, or has just become it. Held until the session ends.
SELECT CASE
    WHEN EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
          AND classid::bigint << 32 | objid::bigint = %(lock)s AND objsubid = 1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) THEN true
    ELSE pg_try_advisory_lock(%(lock)s)
END

-- name: signing_states
-- The end and the newest signed checkpoint of every log.
SELECT l.log_id, l.origin, h.size, h.frontier, c.size, c.note
FROM ledger.logs AS l
JOIN ledger.heads AS h USING (log_id)
LEFT JOIN LATERAL (
    SELECT size, note FROM ledger.checkpoints WHERE checkpoints.log_id = l.log_id ORDER BY size DESC LIMIT 1
) AS c ON true
ORDER BY l.log_id

-- name: insert_checkpoints
-- The signed checkpoints of one round.
INSERT INTO ledger.checkpoints (log_id, size, note)
SELECT * FROM unnest(%(log_ids)s::integer[], %(sizes)s::bigint[], %(notes)s::bytea[])
