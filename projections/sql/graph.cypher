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

-- name: answers
-- Of one table: who wrote it, from what was it made, which policy allowed it, what was found in it, who else reads it.
-- Each part ends as one row, with at most so many in its list, before the next begins: nothing multiplies.
MATCH (t:Table)
WHERE t.key = $key
OPTIONAL MATCH (w:WriteEvent)-[:INTENDED_WRITE]->(t)
WITH t, w ORDER BY w.index DESC LIMIT $writes
OPTIONAL MATCH (p:Person)-[:WROTE]->(w)
OPTIONAL MATCH (w)-[:DECIDED_BY]->(d)
WITH t, w, p, collect(DISTINCT [label(d), d.id, d.version]) AS decided_by
WITH t,
     collect([w.index, w.recorded_at, p.actor, w.principal, w.operation, w.decision, w.outcome, decided_by]) AS writes
OPTIONAL MATCH (t)-[:HAS_SNAPSHOT]->(n:Snapshot)
WHERE n.governed IS NOT NULL
WITH t, writes, n ORDER BY n.index DESC LIMIT $writes
WITH t, writes, collect([n.index, n.snapshot_id, n.governed, n.operation]) AS snapshots
OPTIONAL MATCH (t)-[:HAS_SNAPSHOT]->(u:Snapshot)
WHERE u.governed = false
WITH t, writes, snapshots, u ORDER BY u.index DESC LIMIT $limit
WITH t, writes, snapshots, collect([u.index, u.snapshot_id, u.governed, u.operation]) AS ungoverned
OPTIONAL MATCH (s)-[:LINEAGE_OF]->(t)
WITH t, writes, snapshots, ungoverned, s ORDER BY s.key LIMIT $limit
WITH t, writes, snapshots, ungoverned, collect([label(s), s.key]) AS sources
OPTIONAL MATCH (r:Run)-[:PRODUCED]->(t)
WITH t, writes, snapshots, ungoverned, sources, r ORDER BY r.index DESC LIMIT $limit
OPTIONAL MATCH (r)-[:RUN_OF]->(j:Pipeline)
OPTIONAL MATCH (r)-[:RAN_ON]->(e:Engine)
OPTIONAL MATCH (b:Person)-[:SUBMITTED]->(r)
WITH t, writes, snapshots, ungoverned, sources,
     collect(DISTINCT [CASE WHEN r.run_id IS NULL THEN null ELSE true END, j.namespace, j.name, e.name, b.actor]) AS made_by
OPTIONAL MATCH (v:Policy)-[:SCHEMA_GOVERNS]->(t)
WITH t, writes, snapshots, ungoverned, sources, made_by, v ORDER BY v.from_index DESC LIMIT $limit
WITH t, writes, snapshots, ungoverned, sources, made_by, collect([v.id, v.version, v.to_index]) AS schema_policies
OPTIONAL MATCH (v:Policy)-[:WRITE_GOVERNS]->(t)
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies, v ORDER BY v.from_index DESC LIMIT $limit
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies,
     collect([v.id, v.version, v.to_index]) AS write_policies
OPTIONAL MATCH (t)-[:HAS_COLUMN]->(c:Column)-[:CLASSIFIED_AS]->(f:Classification)
WHERE t.table_uuid IS NULL OR f.table_uuid = t.table_uuid
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies, write_policies, c.path AS path, f.kind AS kind,
     max(f.confidence_percent) AS percent, count(DISTINCT f.snapshot_id) AS times,
     collect(DISTINCT [f.review_index, f.review, f.confidence_percent]) AS reviews
ORDER BY percent DESC, path LIMIT $limit
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies, write_policies,
     collect([path, kind, percent, times, reviews]) AS found
OPTIONAL MATCH (r:Run)-[:READ_FROM]->(t)
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies, write_policies, found, r
     ORDER BY r.index DESC LIMIT $limit
OPTIONAL MATCH (r)-[:RUN_OF]->(j:Pipeline)
OPTIONAL MATCH (r)-[:RAN_ON]->(e:Engine)
OPTIONAL MATCH (b:Person)-[:SUBMITTED]->(r)
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies, write_policies, found,
     collect(DISTINCT [CASE WHEN r.run_id IS NULL THEN null ELSE true END, j.namespace, j.name, e.name, b.actor]) AS read_by
OPTIONAL MATCH (t)-[:LINEAGE_OF]->(x)
WITH t, writes, snapshots, ungoverned, sources, made_by, schema_policies, write_policies, found, read_by, x
     ORDER BY x.key LIMIT $limit
RETURN t.key, t.table_uuid, writes, snapshots, ungoverned, sources, made_by, schema_policies, write_policies, found, read_by,
       collect([label(x), x.key])

-- name: classified_columns
-- The columns of a table in which personal data was found, with its kinds and the highest confidence of each.
-- Nothing of another table that was, or is, called the same.
MATCH (t:Table)-[:HAS_COLUMN]->(c:Column)-[:CLASSIFIED_AS]->(f:Classification)
WHERE t.key = $key AND ($table_uuid IS NULL OR f.table_uuid = $table_uuid)
WITH c.key AS key, c.path AS path, f.kind AS kind, max(f.confidence_percent) AS percent,
     count(DISTINCT f.snapshot_id) AS times,
     collect(DISTINCT [f.review_index, f.review, f.confidence_percent]) AS reviews
RETURN key, path, kind, percent, times, reviews
ORDER BY percent DESC, path, kind
LIMIT $limit

-- name: columns
-- The columns of a table that anything is known of.
MATCH (t:Table)-[:HAS_COLUMN]->(c:Column)
WHERE t.key = $key
RETURN c.key
ORDER BY c.key
LIMIT $limit

-- name: table
-- A table by its key: one row, or none.
MATCH (t:Table)
WHERE t.key = $key
RETURN t.key, t.table_uuid

-- name: unread_columns
-- What the newest scans of a table did not look at.
MATCH (t:Table)-[:HAS_SNAPSHOT]->(n:Snapshot)<-[:SCANNED]-(r:DetectionRun)
WHERE t.key = $key AND ($table_uuid IS NULL OR n.table_uuid = $table_uuid) AND r.columns_unread > 0
RETURN r.columns_unread, r.unread
ORDER BY r.index DESC
LIMIT $limit
