-- Which tables have a kind of personal data: what never was found is known after one step of the index.
CREATE INDEX findings_of_kind ON projections.findings (log_id, generation, kind, table_uuid);
