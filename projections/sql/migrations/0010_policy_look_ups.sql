-- What policies ask of a table, one step of an index each: its newest findings, its last complete scan, and its names.

CREATE INDEX findings_newest ON projections.findings (log_id, generation, table_uuid, field_id, kind, index DESC);
CREATE INDEX scans_complete ON projections.scans (log_id, generation, table_uuid, index) WHERE status = 'completed';
-- A hash, because a uuid of a foreign catalog may be longer than an index entry can be.
CREATE INDEX lineage_tables_uuid ON projections.lineage_tables (log_id, generation, hashtextextended(table_uuid, 0));
