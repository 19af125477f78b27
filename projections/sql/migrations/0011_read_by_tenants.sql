-- What a tenant's reader asks for by key or by snapshot. Row-level security keeps it from every index on a hash of the key:
-- the function is not leakproof, the comparison of texts is. A key has at most 2,000 bytes, which an index entry holds.
CREATE INDEX commits_of_key ON projections.commits (log_id, generation, key, index);
CREATE INDEX findings_of_key ON projections.findings (log_id, generation, key, index);
CREATE INDEX alerts_snapshot ON projections.alerts (log_id, generation, table_uuid, snapshot);
