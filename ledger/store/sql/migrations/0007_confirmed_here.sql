-- A confirmation holds for the very row and the very files that the signer has seen. A dump restored into the server that
-- is running, or a database cloned in it, brings rows along that are of this start of the server; what tells them from
-- those that were written here:
--   entries_file: the file that holds the entries. Its path names the database, so it is another one in a clone, and a
--     table that was dropped and made again, or emptied by TRUNCATE, has another file;
--   written_in: the transaction that wrote the row. Whatever copies the row into a table does it in another one.
-- Neither has a default: a row of a dump from before this migration must not get them when it is restored. Rows without
-- them are not confirmed. A server that is started from a base backup, or promoted, has another server_started_at. Where
-- the table of entries is only rewritten (VACUUM FULL, another tablespace), the signer's next round confirms it again.

ALTER TABLE ledger.confirmations ADD COLUMN entries_file text, ADD COLUMN written_in xid8;

CREATE VIEW ledger.confirmed_logs WITH (security_invoker = true) AS
SELECT log_id FROM ledger.confirmations
WHERE server_started_at = pg_postmaster_start_time()
  AND entries_file = pg_relation_filepath('ledger.entries'::regclass)
  AND written_in::xid = xmin;
COMMENT ON VIEW ledger.confirmed_logs IS 'The logs that the Appender takes entries for.';

GRANT SELECT ON ledger.confirmed_logs TO {appender}, {signer}, {auditor}, {eraser};
-- What erases looks whether a log takes entries, before it waits for that in vain.
CREATE POLICY eraser ON ledger.confirmations FOR SELECT TO {eraser} USING (true);
GRANT SELECT ON ledger.confirmations TO {eraser};
