-- SPDX-License-Identifier: Apache-2.0
-- name: approved_snapshots
-- Of some snapshots those that approved decisions on a table name, and how far into the log these rows are. One statement,
-- so that both are of one moment. A decision on a table that had no uuid yet may be of this one.
SELECT c.next_index, ARRAY(
    SELECT DISTINCT s.id
    FROM projections.commits AS d CROSS JOIN unnest(d.snapshots) AS s (id)
    WHERE d.log_id = l.log_id AND d.generation = l.generation AND d.decision = 'approved'
        AND (d.table_uuid = %(table_uuid)s OR d.table_uuid IS NULL)
        AND d.snapshots && %(snapshots)s::text[] AND s.id = ANY (%(snapshots)s::text[])
)
FROM projections.live AS l JOIN projections.cursors AS c USING (projection, log_id, generation)
WHERE l.projection = 'commits' AND l.log_id = %(log_id)s

-- name: decisions_from
-- The decisions from an index to the end of the log, as it is now.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND type = 'commit.decided'
ORDER BY index

-- name: groups_there
-- Of some groups those that are in the log.
SELECT group_id FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY (%(groups)s::uuid[])

-- name: table_of_uuid
-- The name under which a table was last decided on.
SELECT d.alias, d.namespace, d.name
FROM projections.live AS l JOIN projections.commits AS d USING (log_id, generation)
WHERE l.projection = 'commits' AND l.log_id = %(log_id)s AND d.table_uuid = %(table_uuid)s AND d.decision = 'approved'
    AND d.name IS NOT NULL
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
