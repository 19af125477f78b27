-- SPDX-License-Identifier: Apache-2.0
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

-- name: release_signer_lock
-- Release the lock, so that the next signer need not wait for the end of this session.
SELECT pg_advisory_unlock_all()

-- name: signing_states
-- The head and the newest signed checkpoint of every log, and whether it is confirmed here, for this start of the server.
SELECT l.log_id, l.origin, h.size, h.frontier, c.note, f.log_id IS NOT NULL
FROM ledger.logs AS l
JOIN ledger.heads AS h USING (log_id)
LEFT JOIN ledger.confirmed_logs AS f USING (log_id)
LEFT JOIN LATERAL (
    SELECT note FROM ledger.checkpoints WHERE checkpoints.log_id = l.log_id ORDER BY size DESC LIMIT 1
) AS c ON true
ORDER BY l.log_id

-- name: insert_checkpoints
-- The signed checkpoints of one round.
INSERT INTO ledger.checkpoints (log_id, size, note)
SELECT * FROM unnest(%(log_ids)s::integer[], %(sizes)s::bigint[], %(notes)s::bytea[])

-- name: confirm
-- Confirm logs whose heads extend what was signed, for this start of the server and this database. Not in a savepoint:
-- its rows would carry the id of the subtransaction, and would not count.
INSERT INTO ledger.confirmations (log_id, size, server_started_at, entries_file, written_in)
SELECT log_id, size, pg_postmaster_start_time(), pg_relation_filepath('ledger.entries'), pg_current_xact_id()
FROM unnest(%(log_ids)s::integer[], %(sizes)s::bigint[]) AS compared (log_id, size)
ON CONFLICT (log_id) DO UPDATE
SET size = excluded.size, server_started_at = excluded.server_started_at, entries_file = excluded.entries_file,
    written_in = excluded.written_in

-- name: withdraw
-- Withdraw the confirmations of logs, for any start of the server.
UPDATE ledger.confirmations SET server_started_at = '-infinity'
WHERE log_id = ANY(%(log_ids)s) AND server_started_at > '-infinity'
