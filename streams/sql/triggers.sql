-- SPDX-License-Identifier: Apache-2.0
-- name: approved_snapshots
-- Of some snapshots those that approved decisions on a table name: of decisions that were accepted, or that the file is
-- named after, and of those that are open; and how far into the log these rows are. One statement, so that all are of one
-- moment. A decision on a table that had no uuid yet may be of this one.
SELECT c.next_index, ARRAY(
    SELECT DISTINCT s.id
    FROM projections.commits AS d CROSS JOIN unnest(d.snapshots) AS s (id)
    WHERE d.log_id = l.log_id AND d.generation = l.generation AND d.decision = 'approved'
        AND (d.outcome = 'accepted' OR d.group_id = %(file_of)s::uuid)
        AND (d.table_uuid = %(table_uuid)s OR d.table_uuid IS NULL)
        AND d.snapshots && %(snapshots)s::text[] AND s.id = ANY (%(snapshots)s::text[])
), (
    SELECT coalesce(json_agg(json_build_array(d.group_id, d.key, d.snapshots)), '[]')
    FROM projections.commits AS d
    WHERE d.log_id = l.log_id AND d.generation = l.generation AND d.decision = 'approved'
        AND (d.outcome IS NULL OR d.outcome = 'unknown')
        AND (d.table_uuid = %(table_uuid)s OR d.table_uuid IS NULL)
        AND d.snapshots && %(snapshots)s::text[]
)
FROM projections.live AS l JOIN projections.cursors AS c USING (projection, log_id, generation)
WHERE l.projection = 'commits' AND l.log_id = %(log_id)s

-- name: commits_from
-- The decisions and outcomes from an index to the end of the log, as it is now.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND type IN ('commit.decided', 'commit.settled')
ORDER BY index

-- name: decision_of_group
-- The decision of a group on a key.
SELECT d.entry
FROM ledger.entries AS g CROSS JOIN LATERAL (
    SELECT e.entry FROM ledger.entries AS e
    WHERE e.log_id = g.log_id AND e.index >= g.index AND e.index < %(before)s AND e.key = %(key)s
        AND e.type = 'commit.decided'
    ORDER BY e.index
    LIMIT 1
) AS d
WHERE g.log_id = %(log_id)s AND g.group_id = %(group_id)s

-- name: triggers_between
-- The last triggers between two indices, newest first.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(before)s AND type = 'trigger.received'
ORDER BY index DESC
LIMIT %(limit)s

-- name: groups_there
-- Of some groups those that are in the log.
SELECT group_id FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY (%(groups)s::uuid[])

-- name: table_of_uuid
-- The name under which a table was last decided on: it was loaded by that name, or has it since.
SELECT d.alias, d.namespace, d.name
FROM projections.live AS l JOIN projections.commits AS d USING (log_id, generation)
WHERE l.projection = 'commits' AND l.log_id = %(log_id)s AND d.table_uuid = %(table_uuid)s AND d.decision = 'approved'
    AND d.name IS NOT NULL AND (d.base IS NOT NULL OR d.outcome = 'accepted')
ORDER BY d.index DESC
LIMIT 1

-- name: settled_location
-- Whether one of the last commits to a table through the gateway led to this metadata file.
SELECT 1
FROM (
    SELECT d.metadata_location
    FROM projections.live AS l JOIN projections.commits AS d USING (log_id, generation)
    WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
        AND hashtextextended(d.key, 0) = hashtextextended(%(key)s, 0) AND d.key = %(key)s
    ORDER BY d.index DESC
    LIMIT 100
) AS last
WHERE last.metadata_location = %(metadata_location)s
LIMIT 1
