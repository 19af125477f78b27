-- name: writes
-- Who wrote what, under which policy: the last writes below an index, each with the policies in force at its place.
MATCH (w:WriteEvent)
WHERE w.index < $before
WITH w ORDER BY w.index DESC LIMIT $limit
MATCH (p:Person)-[:WROTE]->(w)-[:INTENDED_WRITE]->(t)
OPTIONAL MATCH (v:Policy)
WHERE v.from_index <= w.as_of AND (v.to_index IS NULL OR v.to_index > w.as_of)
WITH w, p, t, v ORDER BY v.id
WITH w, p, t, collect([v.kind, v.id, v.version]) AS policies
RETURN w.index, w.recorded_at, p.actor, w.principal, w.operation, t.key, w.decision, w.outcome,
       w.reason_id, w.reason_version, policies
ORDER BY w.index DESC

-- name: writes_of_target
-- The same for one table, view or namespace.
MATCH (t)<-[:INTENDED_WRITE]-(w:WriteEvent)
WHERE t.key = $key AND w.index < $before
WITH t, w ORDER BY w.index DESC LIMIT $limit
MATCH (p:Person)-[:WROTE]->(w)
OPTIONAL MATCH (v:Policy)
WHERE v.from_index <= w.as_of AND (v.to_index IS NULL OR v.to_index > w.as_of)
WITH w, p, t, v ORDER BY v.id
WITH w, p, t, collect([v.kind, v.id, v.version]) AS policies
RETURN w.index, w.recorded_at, p.actor, w.principal, w.operation, t.key, w.decision, w.outcome,
       w.reason_id, w.reason_version, policies
ORDER BY w.index DESC
