-- What a tenant's reader lists: tables by name, and of a table its kinds of findings and its last scans. A name is a key of
-- at most 2,000 bytes, which an index entry holds; row-level security keeps the reader from every index on a hash of it.
CREATE INDEX table_names_current ON projections.table_names (log_id, projection, generation, key COLLATE "C")
    WHERE is_current;
CREATE INDEX findings_kinds ON projections.findings (log_id, generation, table_uuid, kind, field_id, confidence_percent);
CREATE INDEX scans_of_table ON projections.scans (log_id, generation, table_uuid, index);
