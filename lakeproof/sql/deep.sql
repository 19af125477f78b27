-- name: aggregates
-- The versions of everything people edit.
SELECT key, version FROM ledger.aggregates WHERE log_id = %(log_id)s

-- name: tables
-- The pointers of the built-in catalog.
SELECT alias, namespace, name, metadata_location, metadata_sha256, table_uuid
FROM gateway.tables WHERE log_id = %(log_id)s

-- name: control_indices
-- Where the control entries stand.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND is_control
