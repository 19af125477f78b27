-- name: namespace_replay
-- Holds if the namespace exists: its properties, changed again as the request of the log says.
UPDATE gateway.namespaces SET properties = (properties - %(removals)s::text[]) || %(updates)s::jsonb
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[]
