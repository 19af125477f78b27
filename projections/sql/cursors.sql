-- SPDX-License-Identifier: Apache-2.0
-- name: progress
-- How far each projection of each tenant's log, or of one, is; generation is null before a runner has seen the log.
SELECT p.projection, g.log_id, g.origin, g.tenant, g.reader, h.size, l.generation, c.version, coalesce(c.next_index, 0)
FROM ledger.logs AS g
JOIN ledger.heads AS h USING (log_id)
CROSS JOIN unnest(%(projections)s::text[]) AS p (projection)
LEFT JOIN projections.live AS l ON l.projection = p.projection AND l.log_id = g.log_id
LEFT JOIN projections.cursors AS c
    ON c.projection = l.projection AND c.log_id = l.log_id AND c.generation = l.generation
WHERE g.tenant IS NOT NULL AND (%(log_id)s::integer IS NULL OR g.log_id = %(log_id)s)
ORDER BY g.log_id, p.projection

-- name: next_index
-- The cursor of one generation.
SELECT next_index FROM projections.cursors
WHERE projection = %(projection)s AND log_id = %(log_id)s AND generation = %(generation)s

-- name: move
-- The cursor moves with what was applied.
UPDATE projections.cursors SET next_index = %(next_index)s
WHERE projection = %(projection)s AND log_id = %(log_id)s AND generation = %(generation)s

-- name: move_together
-- The same for several projections of a log.
UPDATE projections.cursors AS c SET next_index = %(next_index)s
FROM unnest(%(projections)s::text[], %(generations)s::integer[]) AS g (projection, generation)
WHERE c.projection = g.projection AND c.log_id = %(log_id)s AND c.generation = g.generation

-- name: live
-- Which generation is read, and by which version it was built. Takes no lock.
SELECT l.generation, c.version, c.next_index
FROM projections.live AS l JOIN projections.cursors AS c USING (projection, log_id, generation)
WHERE l.projection = %(projection)s AND l.log_id = %(log_id)s

-- name: lock_live
-- Hold the live generation: nobody else applies to it or switches it. The cursor is read afterwards, in a statement of its own.
SELECT generation FROM projections.live WHERE projection = %(projection)s AND log_id = %(log_id)s FOR UPDATE

-- name: try_lock_live
-- The same for several projections of a log, without those that another process holds.
SELECT projection FROM projections.live WHERE projection = ANY(%(projections)s) AND log_id = %(log_id)s
FOR UPDATE SKIP LOCKED

-- name: live_of_log
-- Which generations of a log are read, of these projections.
SELECT l.projection, l.generation, c.version, c.next_index
FROM projections.live AS l JOIN projections.cursors AS c USING (projection, log_id, generation)
WHERE l.projection = ANY(%(projections)s) AND l.log_id = %(log_id)s

-- name: insert_cursor
-- A new generation; waits for another process that makes the same one.
INSERT INTO projections.cursors (projection, log_id, generation, version)
VALUES (%(projection)s, %(log_id)s, %(generation)s, %(version)s)
ON CONFLICT DO NOTHING

-- name: insert_live
-- The first generation is live from the start.
INSERT INTO projections.live (projection, log_id, generation, last_generation)
VALUES (%(projection)s, %(log_id)s, %(generation)s, %(generation)s)

-- name: next_generation
-- A number that no generation has had.
UPDATE projections.live SET last_generation = last_generation + 1
WHERE projection = %(projection)s AND log_id = %(log_id)s
RETURNING last_generation

-- name: switch
-- Readers see the new generation from the next statement on.
UPDATE projections.live SET generation = %(generation)s WHERE projection = %(projection)s AND log_id = %(log_id)s

-- name: other_generations
-- Generations that are not live.
SELECT c.generation FROM projections.cursors AS c JOIN projections.live AS l USING (projection, log_id)
WHERE c.projection = %(projection)s AND c.log_id = %(log_id)s AND c.generation <> l.generation
ORDER BY c.generation

-- name: behind_erasure
-- Where a generation that is not live ends before the newest erasure in its log: nothing will tell it any more.
SELECT DISTINCT c.projection, g.log_id, g.origin, g.tenant, g.reader
FROM projections.cursors AS c
JOIN projections.live AS l USING (projection, log_id)
JOIN ledger.logs AS g USING (log_id)
WHERE c.projection = ANY(%(projections)s) AND c.generation <> l.generation AND EXISTS (
    SELECT FROM ledger.entries AS e
    WHERE e.log_id = c.log_id AND e.type = 'payload.erased' AND e.index >= c.next_index
)
ORDER BY g.log_id, c.projection

-- name: delete_cursor
-- The generation is gone; the foreign key of projections.live refuses the live one.
DELETE FROM projections.cursors
WHERE projection = %(projection)s AND log_id = %(log_id)s AND generation = %(generation)s

-- name: try_lock_rebuild
-- One rebuild or prune of a projection and log at a time, as long as the session lives.
SELECT pg_try_advisory_lock(hashtextextended('projections.rebuild/' || %(projection)s, %(log_id)s))

-- name: unlock_rebuild
SELECT pg_advisory_unlock(hashtextextended('projections.rebuild/' || %(projection)s, %(log_id)s))
