-- SPDX-License-Identifier: Apache-2.0
-- name: aggregate_create
-- Holds if the aggregate does not exist yet.
INSERT INTO ledger.aggregates (log_id, key, version) VALUES (%(log_id)s, %(key)s, 1) ON CONFLICT DO NOTHING

-- name: aggregate_change
-- Holds if the aggregate is at the version before.
UPDATE ledger.aggregates SET version = %(version)s
WHERE log_id = %(log_id)s AND key = %(key)s AND version = %(version)s::integer - 1

-- name: aggregate_count
-- Always holds: counts one more group under a key.
INSERT INTO ledger.aggregates AS a (log_id, key, version) VALUES (%(log_id)s, %(key)s, 1)
ON CONFLICT (log_id, key) DO UPDATE SET version = a.version + 1

-- name: recorded_insert
-- Holds if none of these versions of aggregates is recorded yet, and none is given twice: one statement for all of them.
WITH inserted AS (
    INSERT INTO ledger.recorded_events (log_id, kind, originator, version, group_id, position)
    SELECT %(log_id)s, %(kind)s, originator, version, %(group_id)s, position
    FROM unnest(%(originators)s::text[], %(versions)s::bigint[], %(positions)s::integer[])
        AS e (originator, version, position)
    ON CONFLICT DO NOTHING
    RETURNING true
)
SELECT FROM inserted HAVING count(*) = cardinality(%(versions)s::bigint[])

-- name: required
-- What makes a guard's statement fail unless it affects one row; the guard is the common table expression before it. The
-- cast fails, and its text is what the server logs.
SELECT CASE count(*) WHEN 1 THEN '1' ELSE 'a guard of a group does not hold' END::integer FROM lakeproof_guard
