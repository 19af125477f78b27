-- Finds a table by its name. A tenant's role cannot use the primary key for that: row-level security compares a namespace,
-- which is an array, only after it has found the tenant's rows (the comparison of arrays is not leakproof).

CREATE INDEX tables_name ON gateway.tables (log_id, alias, name);
