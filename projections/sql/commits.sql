-- SPDX-License-Identifier: Apache-2.0
-- name: insert_decided
-- A row for every decision, with its outcome if that is known already.
INSERT INTO projections.commits (
    log_id, generation, index, group_id, key, recorded_at, actor, principal, principal_source, operation, actions,
    alias, namespace, name, decision, reason_id, reason_version, as_of, policy_set, request, base, table_uuid, snapshots,
    settled_index, settled_at, outcome, evidence, metadata_location, metadata_sha256
)
SELECT %(log_id)s, %(generation)s, x.*
FROM json_to_recordset(%(rows)s::json) AS x (
    index bigint, group_id uuid, key text, recorded_at timestamptz, actor text, principal text, principal_source text,
    operation text, actions text[], alias text, namespace text[], name text, decision text, reason_id text,
    reason_version bigint, as_of bigint, policy_set text, request text, base text, table_uuid text, snapshots text[],
    settled_index bigint, settled_at timestamptz, outcome text, evidence text, metadata_location text,
    metadata_sha256 text
)

-- name: settle
-- The last outcome of each decision. An outcome never stands before its decision, however the entries are cut. The sum
-- keeps the planner from reading all commits before the outcome by the primary key.
UPDATE projections.commits AS c
SET settled_index = x.settled_index, settled_at = x.settled_at, outcome = x.outcome, evidence = x.evidence,
    metadata_location = x.metadata_location, metadata_sha256 = x.metadata_sha256,
    table_uuid = coalesce(x.table_uuid, c.table_uuid)
FROM json_to_recordset(%(rows)s::json) AS x (
    group_id uuid, key text, settled_index bigint, settled_at timestamptz, outcome text, evidence text,
    metadata_location text, metadata_sha256 text, table_uuid text
)
WHERE c.log_id = %(log_id)s AND c.generation = %(generation)s AND c.group_id = x.group_id AND c.key = x.key
  AND c.index + 0 < x.settled_index

-- name: erase_principals
-- Remove the principal from commits whose part with the principal was erased.
UPDATE projections.commits AS c
SET principal = NULL
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (at bigint, actor text, index bigint, before bigint)
WHERE c.log_id = %(log_id)s AND c.generation = %(generation)s AND c.principal IS NOT NULL AND c.index < x.at
  AND (x.actor IS NULL OR c.actor = x.actor) AND (x.index IS NULL OR c.index = x.index)
  AND (x.before IS NULL OR c.index < x.before)

-- name: digest_commits
-- Every row in the order of the log.
SELECT index, group_id::text, key, recorded_at, actor, principal, principal_source, operation, actions, alias,
       namespace, name, decision, reason_id, reason_version, as_of, policy_set, request, base, table_uuid, snapshots,
       settled_index, settled_at, outcome, evidence, metadata_location, metadata_sha256
FROM projections.commits
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY index

-- name: drop_commits
-- The rows of one generation.
DELETE FROM projections.commits WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: commits
-- The last commits below an index, of the live generation.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.live AS l JOIN projections.commits AS c USING (log_id, generation)
WHERE l.projection = 'commits' AND c.index < %(before)s
  AND (%(decision)s::text IS NULL OR c.decision = %(decision)s)
ORDER BY c.index DESC
LIMIT %(limit)s

-- name: last_refused
-- The last commits of one log that were refused, found by the index of those.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.commits AS c
WHERE c.log_id = %(log_id)s AND c.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
  )
  AND c.decision IN ('rejected', 'undecidable')
ORDER BY c.index DESC
LIMIT %(limit)s

-- name: commits_of_key
-- The same for one table, view or namespace.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.live AS l JOIN projections.commits AS c USING (log_id, generation)
WHERE l.projection = 'commits' AND c.index < %(before)s
  AND hashtextextended(c.key, 0) = hashtextextended(%(key)s, 0) AND c.key = %(key)s
  AND (%(decision)s::text IS NULL OR c.decision = %(decision)s)
ORDER BY c.index DESC
LIMIT %(limit)s

-- name: commits_of_group
-- The commits that one group decided (several tables, if it was a transaction).
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.live AS l JOIN projections.commits AS c USING (log_id, generation)
WHERE l.projection = 'commits' AND c.group_id = %(group_id)s
ORDER BY c.index

-- name: commits_of_snapshots
-- The commits that were to add some snapshots to the table of a uuid, among the last ones below an index.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM (
    SELECT d.* FROM projections.commits AS d
    WHERE d.log_id = %(log_id)s AND d.generation = (
        SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
      )
      AND d.table_uuid = %(table_uuid)s AND d.index < %(before)s
    ORDER BY d.index DESC
    LIMIT %(examined)s
) AS c
WHERE c.snapshots && %(snapshots)s::text[]
ORDER BY c.index

-- name: commit_at
-- The commit that the entry at an index decided.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.live AS l JOIN projections.commits AS c USING (log_id, generation)
WHERE l.projection = 'commits' AND c.index = %(index)s

-- name: history_floor
-- The index of the commit so many below an index: what is looked through for one page ends there.
SELECT c.index
FROM projections.commits AS c
WHERE c.log_id = %(log_id)s AND c.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
  )
  AND c.key = %(key)s AND c.index < %(before)s
ORDER BY c.index DESC
OFFSET %(skipped)s LIMIT 1

-- name: history_of_actions
-- The same as what follows, of commits that do one of some things, down to an index.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.commits AS c
WHERE c.log_id = %(log_id)s AND c.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
  )
  AND c.key = %(key)s AND c.index < %(before)s AND c.index >= %(floor)s AND c.actions && %(actions)s::text[]
ORDER BY c.index DESC

-- name: history
-- The last commits of one table, view or namespace below an index, in one log. Its generation is a constant: joined, it
-- would keep the planner from reading the index in its order.
SELECT c.index, c.group_id, c.key, c.recorded_at, c.actor, c.principal, c.principal_source, c.operation, c.actions,
       c.alias, c.namespace, c.name, c.decision, c.reason_id, c.reason_version, c.as_of, c.policy_set, c.request, c.base,
       c.table_uuid, c.snapshots, c.settled_index, c.settled_at, c.outcome, c.evidence, c.metadata_location,
       c.metadata_sha256
FROM projections.commits AS c
WHERE c.log_id = %(log_id)s AND c.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
  )
  AND c.key = %(key)s AND c.index < %(before)s
ORDER BY c.index DESC
LIMIT %(limit)s
