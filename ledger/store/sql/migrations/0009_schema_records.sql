-- What the system log has recorded of the schema, roles, grants and settings is found without reading the rest of it: it
-- is looked for at every start.

CREATE INDEX entries_schema ON ledger.entries (log_id, index) WHERE type = 'schema.recorded';
