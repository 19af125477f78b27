-- SPDX-License-Identifier: Apache-2.0
-- name: open_of_groups
-- Approved commits of these decisions that are not at an end.
SELECT index, group_id, key, recorded_at, actor, operation, reason, is_unknown FROM projections.open_commits
WHERE log_id = %(log_id)s AND generation = %(generation)s AND group_id = ANY(%(group_ids)s)
ORDER BY index

-- name: upsert_open
-- Approved decisions, and those whose outcome could not be found out.
INSERT INTO projections.open_commits (
    log_id, generation, index, group_id, key, recorded_at, actor, operation, reason, is_unknown
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    index bigint, group_id uuid, key text, recorded_at timestamptz, actor text, operation text, reason text,
    is_unknown boolean
)
ON CONFLICT (log_id, generation, index) DO UPDATE SET is_unknown = excluded.is_unknown

-- name: delete_open
-- At an end.
DELETE FROM projections.open_commits
WHERE log_id = %(log_id)s AND generation = %(generation)s AND index = ANY(%(indices)s)

-- name: add_counts
-- More commits of these dimensions.
INSERT INTO projections.commit_counts AS c (
    log_id, generation, digest, hour, key, actor, operation, decision, outcome, reason, count
)
SELECT %(log_id)s, %(generation)s, decode(x.digest, 'hex'), x.hour, x.key, x.actor, x.operation, x.decision, x.outcome,
       x.reason, x.count
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    digest text, hour timestamptz, key text, actor text, operation text, decision text, outcome text, reason text,
    count bigint
)
ON CONFLICT (log_id, generation, digest) DO UPDATE SET count = c.count + excluded.count

-- name: add_totals
-- The same without key and actor, by hour and over all time.
WITH added AS (
    SELECT x.* FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
        digest text, total text, hour timestamptz, operation text, decision text, outcome text, reason text, count bigint
    )
),
hours AS (
    INSERT INTO projections.commit_hours AS c (
        log_id, generation, digest, hour, operation, decision, outcome, reason, count
    )
    SELECT %(log_id)s, %(generation)s, decode(x.digest, 'hex'), x.hour, x.operation, x.decision, x.outcome, x.reason,
           x.count
    FROM added AS x
    ON CONFLICT (log_id, generation, digest) DO UPDATE SET count = c.count + excluded.count
)
INSERT INTO projections.commit_totals AS c (log_id, generation, digest, operation, decision, outcome, reason, count)
SELECT %(log_id)s, %(generation)s, decode(x.total, 'hex'), x.operation, x.decision, x.outcome, x.reason, sum(x.count)
FROM added AS x
GROUP BY x.total, x.operation, x.decision, x.outcome, x.reason
ON CONFLICT (log_id, generation, digest) DO UPDATE SET count = c.count + excluded.count

-- name: add_refusals
-- Requests refused before any decision.
INSERT INTO projections.access_refusals AS c (log_id, generation, digest, operation, reason, count)
SELECT %(log_id)s, %(generation)s, decode(x.digest, 'hex'), x.operation, x.reason, x.count
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (digest text, operation text, reason text, count bigint)
ON CONFLICT (log_id, generation, digest) DO UPDATE SET count = c.count + excluded.count

-- name: add_events
-- Events of lineage, triggers and detection.
INSERT INTO projections.event_totals AS c (log_id, generation, event, kind, degree, count)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (event text, kind text, degree text, count bigint)
ON CONFLICT (log_id, generation, event, kind, degree) DO UPDATE SET count = c.count + excluded.count

-- name: digest_counts
-- By their dimensions' digest, which is their natural key.
SELECT 'count', digest, hour, key, actor, operation, decision, outcome, reason, count FROM projections.commit_counts
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY digest

-- name: digest_hours
-- The same.
SELECT 'hour', digest, hour, operation, decision, outcome, reason, count FROM projections.commit_hours
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY digest

-- name: digest_totals
-- The same.
SELECT 'total', digest, operation, decision, outcome, reason, count FROM projections.commit_totals
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY digest

-- name: digest_refusals
-- The same.
SELECT 'refusal', digest, operation, reason, count FROM projections.access_refusals
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY digest

-- name: digest_events
-- By natural key, bytewise.
SELECT 'event', event, kind, degree, count FROM projections.event_totals
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY event COLLATE "C", kind COLLATE "C", degree COLLATE "C"

-- name: digest_open
-- In the order of the log.
SELECT 'open', index, group_id::text, key, recorded_at, actor, operation, reason, is_unknown FROM projections.open_commits
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY index

-- name: drop_counts
-- The rows of one generation.
DELETE FROM projections.commit_counts WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_hours
-- The same.
DELETE FROM projections.commit_hours WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_totals
-- The same.
DELETE FROM projections.commit_totals WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_refusals
-- The same.
DELETE FROM projections.access_refusals WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_events
-- The same.
DELETE FROM projections.event_totals WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_open
-- The same.
DELETE FROM projections.open_commits WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: history
-- Commits by hour and dimension since a time, of the live generation.
SELECT c.hour, c.key, c.actor, c.operation, c.decision, c.outcome, c.reason, c.count
FROM projections.live AS l JOIN projections.commit_counts AS c USING (log_id, generation)
WHERE l.projection = 'metrics' AND c.hour >= %(since)s
ORDER BY c.hour DESC, c.count DESC, c.digest
LIMIT %(limit)s

-- name: hours
-- Commits of one log by hour, whatever tables and actors, since a time, of the live generation.
SELECT c.hour, c.operation, c.decision, c.outcome, c.reason, c.count
FROM projections.commit_hours AS c
WHERE c.log_id = %(log_id)s AND c.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'metrics' AND l.log_id = %(log_id)s
  )
  AND c.hour >= %(since)s
ORDER BY c.hour DESC, c.count DESC, c.operation, c.decision, c.outcome, c.reason
LIMIT %(limit)s

-- name: totals
-- Commits at their end, over all logs that the role may see.
SELECT g.tenant, c.operation, c.decision, c.outcome, c.reason, c.count
FROM projections.live AS l
JOIN projections.commit_totals AS c USING (log_id, generation)
JOIN ledger.logs AS g USING (log_id)
WHERE l.projection = 'metrics'
ORDER BY c.log_id, c.digest

-- name: open
-- Approved commits that are not at an end.
SELECT g.tenant, c.operation, c.is_unknown, count(*)
FROM projections.live AS l
JOIN projections.open_commits AS c USING (log_id, generation)
JOIN ledger.logs AS g USING (log_id)
WHERE l.projection = 'metrics'
GROUP BY c.log_id, g.tenant, c.operation, c.is_unknown
ORDER BY c.log_id, c.operation, c.is_unknown

-- name: refusals
-- Requests refused before any decision.
SELECT g.tenant, c.operation, c.reason, c.count
FROM projections.live AS l
JOIN projections.access_refusals AS c USING (log_id, generation)
JOIN ledger.logs AS g USING (log_id)
WHERE l.projection = 'metrics'
ORDER BY c.log_id, c.digest

-- name: events
-- Events of lineage, triggers and detection, by the members that distinguish events of one type.
SELECT g.tenant, c.event, c.kind, c.degree, c.count
FROM projections.live AS l
JOIN projections.event_totals AS c USING (log_id, generation)
JOIN ledger.logs AS g USING (log_id)
WHERE l.projection = 'metrics'
ORDER BY c.log_id, c.event, c.kind, c.degree
