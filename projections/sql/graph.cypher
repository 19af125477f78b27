-- SPDX-License-Identifier: Apache-2.0
-- name: writes
-- Who wrote what, under which policy: the last writes below an index, each with what was in force at its place.
MATCH (w:WriteEvent)
WHERE w.index < $before
WITH w ORDER BY w.index DESC LIMIT $limit
MATCH (p:Person)-[:WROTE]->(w)-[:INTENDED_WRITE]->(t)
OPTIONAL MATCH (w)-[:DECIDED_BY]->(d)
WITH w, p, t, collect([label(d), d.id, d.version]) AS decided_by
OPTIONAL MATCH (v:Policy)
WHERE v.from_index <= w.as_of AND (v.to_index IS NULL OR v.to_index > w.as_of)
WITH w, p, t, decided_by, collect([label(v), v.id, v.version]) AS policies
OPTIONAL MATCH (r:AccessRule)
WHERE r.from_index <= w.as_of AND (r.to_index IS NULL OR r.to_index > w.as_of)
WITH w, p, t, decided_by, policies, collect([label(r), r.id, r.version]) AS rules
RETURN w.index, w.recorded_at, p.actor, w.principal, w.operation, t.key, w.decision, w.outcome,
       decided_by, policies, rules
ORDER BY w.index DESC

-- name: writes_of_target
-- The same for one table, view or namespace.
MATCH (t)<-[:INTENDED_WRITE]-(w:WriteEvent)
WHERE t.key = $key AND w.index < $before
WITH t, w ORDER BY w.index DESC LIMIT $limit
MATCH (p:Person)-[:WROTE]->(w)
OPTIONAL MATCH (w)-[:DECIDED_BY]->(d)
WITH w, p, t, collect([label(d), d.id, d.version]) AS decided_by
OPTIONAL MATCH (v:Policy)
WHERE v.from_index <= w.as_of AND (v.to_index IS NULL OR v.to_index > w.as_of)
WITH w, p, t, decided_by, collect([label(v), v.id, v.version]) AS policies
OPTIONAL MATCH (r:AccessRule)
WHERE r.from_index <= w.as_of AND (r.to_index IS NULL OR r.to_index > w.as_of)
WITH w, p, t, decided_by, policies, collect([label(r), r.id, r.version]) AS rules
RETURN w.index, w.recorded_at, p.actor, w.principal, w.operation, t.key, w.decision, w.outcome,
       decided_by, policies, rules
ORDER BY w.index DESC
